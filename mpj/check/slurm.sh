# Functions that start and stop a Slurm of three nodes, for `engines` and `startup`. A node has NODE_CPUS CPUs (8).

# Starts a Slurm whose nodes are the hosts; its files are in $slurm.
start_slurm() {
  local i
  mkdir "$slurm/state"
  head -c 128 /dev/urandom >"$slurm/munge.key"
  chmod 400 "$slurm/munge.key"
  munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge.sock" --pid-file="$slurm/munged.pid" \
    --log-file="$slurm/munged.log" --seed-file="$slurm/seed" 2>"$slurm/munged.err"
  cat >"$SLURM_CONF" <<CONF
ClusterName=mpj
SlurmctldHost=$(hostname -s)(10.78.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.sock
SlurmctldPort=26817
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.%n.log
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
TmpFS=$slurm/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiParams=ports=26900-27200
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
KillWait=2
SlurmdParameters=config_overrides
PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES
NodeName=h0 NodeAddr=10.78.0.10 CPUs=${NODE_CPUS:-8} RealMemory=1000
NodeName=h1 NodeAddr=10.78.0.11 CPUs=${NODE_CPUS:-8} RealMemory=1000
NodeName=h2 NodeAddr=10.78.0.12 CPUs=${NODE_CPUS:-8} RealMemory=1000
CONF
  for i in 0 1 2; do echo "10.78.0.1$i h$i"; done >"$slurm/hosts"
  slurmctld -c -i 2>"$slurm/slurmctld.err"
  for i in 0 1 2; do
    mkdir "$slurm/spool.h$i" "$slurm/tmp.h$i"
    "$NETNS_EXEC" "h$i" "exec unshare --mount --uts sh -c 'mount --bind $slurm/hosts /etc/hosts && hostname h$i &&
      SLURM_CONF=$SLURM_CONF exec slurmd -N h$i'"
  done
  for i in {1..300}; do
    [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" != 3 ] || return 0
    sleep 0.1
  done
  return 1
}

stop_slurm() {
  local file
  for file in "$slurm"/*.pid; do [ ! -e "$file" ] || kill "$(cat "$file")" || true; done
  # slurmctld writes its state before it exits, and then removes this file.
  for _ in {1..50}; do [ -e "$slurm/slurmctld.pid" ] || break; sleep 0.1; done
}
