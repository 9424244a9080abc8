# Functions that kill a process of each of many jobs, for `engines`.

# Prints the processes whose variable MET is as here: those of a job, except those of Slurm. A rank of an earlier job
# can start late, after its launcher was killed.
processes_of_job() {
  grep -lsz "^MET=$MET\$" /proc/[0-9]*/environ | cut -d/ -f3
}

ranks_of_job() {
  local pid
  for pid in $(processes_of_job); do [ "$(readlink "/proc/$pid/exe")" != "$JOBS" ] || echo "$pid"; done
}

# Prints the processes with which the named process manager runs a job: the launcher, and on each host the parent of the
# ranks. Slurm's daemons and `sbatch`, which only waits, are not among them. Without PMI, slurmstepd is not among them
# either, because the job continues after its death.
engine_of_job() {
  local pid parent
  {
    processes_of_job
    ranks_of_job | xargs -r -n 1 ps -o ppid= -p
  } | sort -u | while read -r pid; do
    case $1,$(program_name "$pid") in
      none,slurmstepd* | sbatch,slurmstepd*) continue ;;
      *,mpiexec.hydra | *,hydra_* | *,mpirun | *,orterun | *,orted | *,prte* | *,srun | *,slurmstepd*) ;;
      *) continue ;;
    esac
    # A launcher may have a copy of itself that only waits for its end, as srun does.
    read -r parent < <(ps -o ppid= -p "$pid") || continue
    [ "$(program_name "$pid")" = "$(program_name "$parent")" ] || echo "$pid"
  done
}

program_name() {
  basename "$(readlink "/proc/$1/exe")"
}

# Kills a random process of a job that has ranks, and prints the name of its program: a rank, or in each second job a
# process of the process manager, if it has one: name of the process manager, number of the job.
kill_one() {
  local victim name
  for _ in {1..1200}; do
    victim=$(ranks_of_job | shuf -n 1)
    [ -z "$victim" ] || [ $(($2 % 2)) = 1 ] || victim=$(engine_of_job "$1" | shuf -n 1 | grep . || echo "$victim")
    if [ -n "$victim" ] && name=$(program_name "$victim") && kill -KILL "$victim" 2>/dev/null; then
      echo "$name"
      return
    fi
    sleep 0.05
  done
}

failure_of_kills() {
  local number code job name why killed slowest=0
  # Some process managers do not report a rank that is killed before it joins: the others wait this long for it.
  export MET MPJ_RENDEZVOUS_TIMEOUT=20
  for ((number = 1; number <= KILLS; number++)); do
    code=0
    MET=$(mktemp -d)
    # Without the message of the shell that the launcher was killed.
    run_job "$1" "$2" "$JOBS" rank cut 2>/dev/null &
    job=$!
    sleep "$((RANDOM % 2)).$((RANDOM % 1000))"
    name=$(kill_one "$1" "$number")
    killed=$SECONDS
    wait $job || code=$?
    why=$(failure_to_end)
    rm -r "$MET"
    echo "$name" >>"$2.killed"
    [ $((SECONDS - killed)) -le $slowest ] || slowest=$((SECONDS - killed))
    [ -n "$name" ] || why="no rank started $why"
    case $code in 0 | 124) why="exit status $code $why" ;; esac
    [ -z "$why" ] || { echo "job $number, $name killed: $why"; return; }
    echo "$number in <= $((slowest + 1)) s" >"$2.number"
  done
  printf '%s: killed' "$1" >&2
  sort "$2.killed" | uniq -c | awk '{ printf " %s (%d)", $2, $1 } END { print "" }' >&2
}
