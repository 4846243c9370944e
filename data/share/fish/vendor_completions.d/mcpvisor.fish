# Completion of mcpvisor for fish: `mcpvisor completion fish`.
function __mcpvisor_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in (mcpvisor completion fish -- $words 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c mcpvisor -f -a '(__mcpvisor_complete)'
