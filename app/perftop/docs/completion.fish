# fish completion for perftop, made from its parser
function __perftop_list
    # These words, each behind what is typed up to the last comma.
    set -l typed (string replace -r '^--?[a-z-]*=' '' -- (commandline -ct))
    set -l before (string replace -r '[^,]*$' '' -- $typed)
    printf '%s\n' $before$argv
end

function __perftop_typed
    # The words before the cursor, without the name of the program.
    set -l words (commandline -opc)
    test (count $words) -gt 1; and printf '%s\n' $words[2..-1]
end

function __perftop_command
    # Whether the cursor is behind --
    contains -- -- (__perftop_typed)
end

function __perftop_first
    set -l typed (__perftop_typed)
    test (count $typed) -eq 0; or test $typed[1] = --print-completion
end

function __perftop_verb
    # Whether the verb is this one; without a verb it is live.
    __perftop_command; and return 1
    set -l typed (__perftop_typed)
    if test (count $typed) -gt 0; and contains -- $typed[1] $__perftop_verbs
        test $typed[1] = $argv[1]
    else
        test $argv[1] = live
    end
end

function __perftop_behind
    # Completes the command behind -- as if it stood alone.
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -e words[1..$at]
    complete -C (string join ' ' -- (string escape -- $words) (commandline -ct))
end

function __perftop_processes
    ps -eo comm= 2>/dev/null | sort -u
end

set -g __perftop_pmu /sys/bus/event_source/devices/cpu/events
complete -c perftop -f
complete -c perftop -n __perftop_command -f -a '(__perftop_behind)'
@GENERATED@
