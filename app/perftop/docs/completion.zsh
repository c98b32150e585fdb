#compdef perftop
# zsh completion for perftop, made from its parser
_perftop_pmu=/sys/bus/event_source/devices/cpu/events
@GENERATED@
_perftop_processes() {
  compadd -- ${(fu)"$(ps -eo comm= 2>/dev/null)"}
}

_perftop() {
  local -a specs
  local verb=live
  local -i at=${words[(ie)--]}
  if (( at < CURRENT )); then
    shift $at words
    (( CURRENT -= at ))
    _normal
    return
  fi
  if (( CURRENT == 2 )) && [[ $PREFIX != -* ]]; then
    _describe verb _perftop_verbs
    return
  fi
  if [[ -n ${_perftop_verbs[(r)${words[2]}:*]} ]]; then
    verb=${words[2]}
    shift words
    (( CURRENT -= 1 ))
  fi
  _perftop_options $verb
  if [[ $verb == live && ( $CURRENT == 2 || ${words[2]} == --print-completion ) ]]; then
    local -a own=($specs)
    _perftop_options ''
    specs+=($own)
  fi
  _arguments -S $specs
}

if [[ $funcstack[1] == _perftop ]]; then
  _perftop "$@"
else
  compdef _perftop perftop
fi
