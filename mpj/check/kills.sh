# Functions that kill a process of each of many jobs, for `engines`.

# Prints the processes with which a process manager runs a job whose variable MET is as here: the launcher, and on each
# host the parent of the ranks. Slurm's daemons and `sbatch`, which only waits, are not among them.
engine_of_job() {
  local pid parent
  {
    grep -lsz "^MET=$MET\$" /proc/[0-9]*/environ | cut -d/ -f3
    ranks_left | xargs -r -n 1 ps -o ppid= -p
  } | sort -u | while read -r pid; do
    case $(program_name "$pid") in
      mpiexec.hydra | hydra_* | mpirun | orterun | orted | prte* | srun | slurmstepd) ;;
      *) continue ;;
    esac
    # A launcher may have a copy of itself that only waits for its end, as srun does.
    parent=$(ps -o ppid= -p "$pid") || continue
    [ "$(program_name "$pid")" = "$(program_name $parent)" ] || echo "$pid"
  done
}

program_name() {
  basename "$(readlink "/proc/$1/exe")"
}

failure_of_kills() {
  local number code job victim name why killed slowest=0
  MET=$(mktemp -d)
  # Some process managers do not report a rank that is killed before it joins: the others wait this long for it.
  export MET MPJ_RENDEZVOUS_TIMEOUT=20
  for ((number = 1; number <= KILLS; number++)); do
    code=0
    # Without the message of the shell that the launcher was killed.
    run_job "$1" "$2" "$JOBS" rank cut 2>/dev/null &
    job=$!
    sleep "$((RANDOM % 2)).$((RANDOM % 1000))"
    until victim=$(ranks_left | shuf -n 1) && [ -n "$victim" ]; do sleep 0.05; done
    # A process of the process manager in every other job; the environment has none.
    [ $((number % 2)) = 1 ] || victim=$(engine_of_job | shuf -n 1 | grep . || echo "$victim")
    name=$(program_name "$victim")
    kill -KILL "$victim"
    killed=$SECONDS
    wait $job || code=$?
    why=$(failure_to_end)
    [ $((SECONDS - killed)) -le $slowest ] || slowest=$((SECONDS - killed))
    case $code in 0 | 124) why="exit status $code $why" ;; esac
    [ -z "$why" ] || { echo "job $number, $name killed: $why"; break; }
    echo "$number in <= $((slowest + 1)) s" >"$2.number"
  done
  rm -r "$MET"
}
