# Functions that run the commands of docs/running.md as they are written there, for `engines`.

# Prints the commands that start jobs, without comments.
documented_commands() {
  awk '/^```/ { block = /^```sh/ } block' docs/running.md | grep -E '^(mpjrun|mpiexec|mpirun|srun|sbatch)' |
    sed 's/ *#.*//'
}

# Prints the process managers for which a command is: `env` is also for mpjrun, which needs none.
engines_of() {
  case $1 in
    'mpjrun '*) echo env ;;
    'mpiexec.hydra -n '*) echo hydra4 hydra5 intel ;;
    'mpiexec.hydra -launcher '*) echo hydra4 hydra5 ;;
    'mpiexec.hydra -bootstrap '*) echo intel ;;
    'mpirun '*) echo openmpi4 openmpi5 ;;
    'srun --mpi=pmix '*) echo pmix ;;
    'srun --mpi=pmi2 '*) echo pmi2 ;;
    'sbatch '*) echo sbatch ;;
    *) return 1 ;;
  esac
}

# Runs the commands of a process manager in a folder with the files that they name. Variables state what differs here:
# the addresses of the hosts, and that root starts more ranks than there are cores.
failure_of_docs() {
  local number=0 ranks code names folder=$logs/docs.$1
  mkdir -p "$folder/bin"
  printf '#!/bin/sh\nexec "%s" rank pairs\n' "$JOBS" >"$folder/program"
  chmod 755 "$folder/program"
  ln -s "$PWD/mpj" "$folder/mpj"
  ln -s "$MPJRUN" "$folder/bin"
  # `mpirun` can be that of MPICH.
  [ "$1" != openmpi4 ] || ln -s "$(command -v "$(program_of openmpi4)")" "$folder/bin/mpirun"
  while read -r COMMAND; do
    names=$(engines_of "$COMMAND") || { echo "docs/running.md: no engine is for the command $COMMAND"; return; }
    case " $names " in *" $1 "*) ;; *) continue ;; esac
    ranks=$(grep -oE -- '(-n|--ntasks) [0-9]+' <<<"$COMMAND" | grep -oE '[0-9]+')
    code=0
    run_documented "$folder" "$1" "$2" || code=$?
    cat "$folder"/slurm-*.out >>"$2" 2>/dev/null || true
    [ $code = 0 ] && [ "$(grep -c '^pair ' "$2")" = $((ranks * (ranks - 1))) ] ||
      { echo "$COMMAND: exit status $code"; return; }
    echo $((number += 1)) >"$2.number"
  done < <(documented_commands)
  [ $number -gt 0 ] || echo none >"$2.number"
  failure_to_end
}

# Runs COMMAND in a folder: folder, process manager, file for its output.
run_documented() {
  PATH=$1/bin:$(dirname "$(command -v "$(program_of "$2")")"):$PATH FOLDER=$1 COMMAND=$COMMAND SBATCH_WAIT=1 \
    HYDRA_LAUNCHER_EXEC=$NETNS_EXEC HYDRA_IFACE=$NETNS_PREFIX-br \
    I_MPI_HYDRA_BOOTSTRAP_EXEC=$NETNS_EXEC I_MPI_HYDRA_IFACE=$NETNS_PREFIX-br \
    OMPI_MCA_plm_rsh_agent=$NETNS_EXEC OMPI_MCA_oob_tcp_if_include=10.78.0.0/24 OMPI_MCA_rmaps_base_oversubscribe=1 \
    PRTE_MCA_plm_ssh_agent=$NETNS_EXEC PRTE_MCA_oob_tcp_if_include=10.78.0.0/24 \
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none \
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 \
    PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1 run_job "$2" "$3"
}
