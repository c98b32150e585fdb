# bash completion for perftop, made from its parser
_perftop_pmu=/sys/bus/event_source/devices/cpu/events
@GENERATED@
_perftop_words() {
  # Candidates for values of this kind, one a line. $cur is what stands at the cursor.
  local kind=$1 typed
  shift
  # shellcheck disable=SC2012 - names without blanks
  [[ $kind == events ]] && set -- "$@" "$(ls "$_perftop_pmu" 2>/dev/null)"
  case "$kind" in
    words) compgen -W "$*" -- "$cur" ;;
    list | events)
      typed=
      [[ $cur == *,* ]] && typed="${cur%,*},"
      compgen -P "$typed" -W "$*" -- "${cur##*,}" ;;
    files) compopt -o filenames 2>/dev/null; compgen -f -- "$cur" ;;
    directories) compopt -o filenames 2>/dev/null; compgen -d -- "$cur" ;;
    hosts) compgen -A hostname -- "$cur" ;;
    groups) compgen -g -- "$cur" ;;
    processes) compgen -W "$(ps -eo comm= 2>/dev/null | sort -u)" -- "$cur" ;;
  esac
}

_perftop() {
  local line="${COMP_LINE:0:COMP_POINT}" cur prev verb at candidate
  local -a words
  read -ra words <<<"$line"
  cur="${line##*[[:space:]]}"
  [[ -n $cur ]] && unset "words[${#words[@]}-1]"
  prev="${words[${#words[@]}-1]}"
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    if [[ ${COMP_WORDS[at]} == -- ]]; then
      if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset $((at + 1))
      elif declare -F _command_offset >/dev/null; then
        _command_offset $((at + 1))
      elif ((COMP_CWORD == at + 1)); then
        mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
      else
        compopt -o default
      fi
      return
    fi
  done
  verb="${words[1]}"
  [[ -n $verb && " $_perftop_verbs " == *" $verb "* ]] || verb=
  if [[ $cur == --*=* ]]; then
    prev="${cur%%=*}"
    cur="${cur#*=}"
  fi
  local values
  values="$(_perftop_values "${verb:-live}$prev")"
  [[ -z $verb ]] && values="${values:-$(_perftop_values "$prev")}"
  if [[ $prev == -* && -n $values ]]; then
    # shellcheck disable=SC2086 - words
    mapfile -t COMPREPLY < <(_perftop_words $values)
  elif [[ $cur == -* ]]; then
    local options
    options="$(_perftop_options "${verb:-live}")"
    [[ ${#words[@]} == 1 ]] && options+=" $_perftop_general"
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
  elif [[ ${#words[@]} == 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$_perftop_verbs" -- "$cur")
  elif [[ -n $verb ]]; then
    values="$(_perftop_values "$verb")"
    # shellcheck disable=SC2086 - words
    [[ -n $values ]] && mapfile -t COMPREPLY < <(_perftop_words $values)
  fi
  # readline keeps what stands before the last colon or equals sign, as these end words for it.
  if [[ $cur == *[:=]* && $COMP_WORDBREAKS == *:* ]]; then
    local kept="${cur%"${cur##*[:=]}"}"
    for at in "${!COMPREPLY[@]}"; do
      candidate="${COMPREPLY[at]}"
      COMPREPLY[at]="${candidate#"$kept"}"
    done
  fi
}
complete -F _perftop perftop
