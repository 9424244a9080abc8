# Functions that compare jobs with the MPI library of their process manager, for `engines`. `startup` uses some, too.

# Prints the MPI compiler of a process manager, or nothing.
compiler_of() {
  case $1 in
    hydra4) if [ -n "${HYDRA4:-}" ]; then echo "$HYDRA4/bin/mpicc"; else echo mpicc.mpich; fi ;;
    hydra5) echo "$HYDRA5/bin/mpicc" ;;
    intel) echo "$INTEL_MPI/bin/mpicc" ;;
    openmpi4) if [ -n "${OPENMPI4:-}" ]; then echo "$OPENMPI4/bin/mpicc"; else echo mpicc.openmpi; fi ;;
    openmpi5) echo "$OPENMPI5/bin/mpicc" ;;
    pmi2) echo mpicc.mpich ;;
    pmix) echo mpicc.openmpi ;;
  esac
}

# Builds rivals.c for a process manager and prints its path, or prints nothing if there is no compiler.
rival_of() {
  local compiler=$(compiler_of "$1") program=$logs/rival.$1
  [ -n "$compiler" ] && command -v "$compiler" >/dev/null || return 0
  [ -e "$program" ] || I_MPI_ROOT=${INTEL_MPI:-} "$compiler" -O2 -o "$program" mpj/check/rivals.c >"$program.log" 2>&1 || return 0
  echo "$program"
}

# Runs a job with the library of a process manager: arguments of `run_job`.
run_rival() {
  # Every host has a bridge with the address 172.17.0.1, which some libraries try.
  OMPI_MCA_btl_tcp_if_include=10.78.0.0/24 FI_TCP_IFACE=eth0 UCX_NET_DEVICES=eth0 I_MPI_ROOT=${INTEL_MPI:-} run_job "$@"
}

# As `run_rival`, over TCP: the hosts have one name, so the libraries would share memory between them.
run_rival_by_tcp() {
  OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1 MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self FI_PROVIDER=tcp I_MPI_FABRICS=ofi \
    I_MPI_PIN=0 run_rival "$@"
}

# Prints the milliseconds from a time in nanoseconds to the one that rank 0 has printed after a barrier.
start_time() {
  awk -v from="$1" '$1 == "time" { printf "%.1f\n", ($2 - from) / 1e6 }' "$2"
}

median() {
  sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'
}

failure_of_startup() {
  local rival=$(rival_of "$1") i from
  [ -n "$rival" ] || { echo none >"$2.number"; return; }
  # One job of each to read the programs.
  for ((i = 0; i <= RIVALS; i++)); do
    from=$(date +%s%N)
    run_job "$1" "$2" "$JOBS" rank time || { echo "exit status $?"; return; }
    [ $i = 0 ] || start_time "$from" "$2" >>"$2.ours"
    from=$(date +%s%N)
    run_rival "$1" "$2" "$rival" || { report_rival "$2" $?; return; }
    [ $i = 0 ] || start_time "$from" "$2" >>"$2.theirs"
  done
  summarize "$2" 1.1 "$(median <"$2.ours")" "$(median <"$2.theirs")"
}

failure_of_pingpong() {
  local rival=$(rival_of "$1") i
  [ -n "$rival" ] || { echo none >"$2.number"; return; }
  for ((i = 0; i < RIVALS; i++)); do
    MPJ_DEVICES=niodev RANKS=2 run_job "$1" "$2" "$PERF" pingpong 20 4194304 64 || { echo "exit status $?"; return; }
    grep '^PP,same,' "$2" >>"$2.ours"
    RANKS=2 run_rival_by_tcp "$1" "$2" "$rival" pingpong || { report_rival "$2" $?; return; }
    grep '^PP,same,' "$2" >>"$2.theirs"
  done
  summarize "$2" 0.9 "$(mean_of_sizes "$2.ours")" "$(mean_of_sizes "$2.theirs")"
}

# Notes that a job with the library has failed, which is no failure of this project: file of its output, exit status.
report_rival() {
  echo none >"$1.number"
  printf '%s: the library fails with status %s: %s\n' "$(basename "$1")" "$2" "$(tail -n 1 "$1")" >&2
}

# Prints the geometric mean, over all sizes, of the medians of the jobs in us.
mean_of_sizes() {
  local bytes
  for bytes in $(cut -d, -f3 "$1" | sort -un); do
    grep "^PP,same,$bytes," "$1" | cut -d, -f5 | median
  done | awk '{ sum += log($1) } END { printf "%.2f\n", exp(sum / NR) }'
}

# Writes the ratio of two times to the file *.number, and prints a failure if it is above the limit.
summarize() {
  local ratio
  ratio=$(awk -v ours="$3" -v theirs="$4" 'BEGIN { printf "%.2f", ours / theirs }')
  echo "$ratio" >"$1.number"
  printf '%s: %s, the library %s\n' "$(basename "$1")" "$3" "$4" >&2
  awk -v ratio="$ratio" -v limit="$2" 'BEGIN { exit !(ratio > limit) }' && echo "ratio $ratio, expected at most $2" || true
}
