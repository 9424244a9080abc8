//! The secret from which the ranks derive the key of their job.

use std::path::Path;

use mpj_devices::JobKey;
use mpj_devices::config::{Config, NIO_SECURITY};

/// The variable with the secret, and the one with the name of a file that contains it.
const SECRET: &str = "MPJ_SECRET";
const SECRET_FILE: &str = "MPJ_SECRET_FILE";

/// The smallest length of a secret in bytes. An observer of a handshake can test guesses of the secret, so short ones
/// are refused.
const MIN_SECRET: usize = 16;

/// The largest length of a secret in bytes.
const MAX_SECRET: u64 = 4096;

/// Checks a secret.
///
/// # Errors
/// It is too short or too long.
pub(super) fn check(secret: &[u8]) -> Result<(), String> {
    let len = secret.len();
    if (MIN_SECRET..=MAX_SECRET as usize).contains(&len) {
        return Ok(());
    }
    Err(format!(
        "the secret has {len} bytes, but {MIN_SECRET} to {MAX_SECRET} are expected; \
         `head -c 32 /dev/urandom | base64` makes one"
    ))
}

/// Returns the secret that the environment names. It is empty if no variable is set and `MPJ_NIO_SECURITY` is `none`.
///
/// # Errors
/// No variable is set and `MPJ_NIO_SECURITY` is not `none`, both are set, every user can access the file, it cannot be
/// read, the value of `MPJ_SECRET` is not UTF-8, or the secret is too short or too long.
pub(super) fn from_env(config: &Config) -> Result<Vec<u8>, String> {
    let secret = match (std::env::var_os(SECRET_FILE), std::env::var(SECRET)) {
        (Some(_), Ok(_) | Err(std::env::VarError::NotUnicode(_))) => {
            return Err(format!("{SECRET_FILE} and {SECRET} are both set: unset one of them"));
        }
        (Some(path), Err(_)) => {
            let path = Path::new(&path);
            read(path).map_err(|why| format!("{SECRET_FILE}: {}: {why}", path.display()))?
        }
        (None, Ok(secret)) => secret.trim().as_bytes().to_vec(),
        (None, Err(std::env::VarError::NotUnicode(_))) => return Err(format!("{SECRET} is not UTF-8")),
        // The user has allowed connections without protection.
        (None, Err(std::env::VarError::NotPresent)) if config.choice(&NIO_SECURITY) => return Ok(Vec::new()),
        (None, Err(std::env::VarError::NotPresent)) => {
            return Err(format!(
                "no secret protects the connections of this job: set {SECRET_FILE} (a file that only its owner can \
                 read) or {SECRET} to the same secret for all ranks, for example the output of \
                 `head -c 32 /dev/urandom | base64`; if only trusted processes can reach the hosts, set \
                 MPJ_NIO_SECURITY=none to connect without a secret; to run each process as a job of its own, \
                 set MPJ_LAUNCHER=none"
            ));
        }
    };
    check(&secret).map(|()| secret)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mode = file.metadata().map_err(|e| e.to_string())?.mode();
    // Secrets of Kubernetes are readable by the group of the pod.
    if mode & 0o007 != 0 {
        return Err(format!("every user can access it (mode {:o}): chmod o= it", mode & 0o777));
    }
    let mut secret = Vec::new();
    file.take(MAX_SECRET + 1).read_to_end(&mut secret).map_err(|e| e.to_string())?;
    Ok(secret.trim_ascii().to_vec())
}

/// Returns the key of the rendezvous of a job.
pub(super) fn rendezvous_key(secret: &[u8], job: &str) -> JobKey {
    // The job id is 0 for every secret. Otherwise the handshake would refuse a process with a wrong secret as one of
    // another job, before the proof shows that the secret is wrong.
    JobKey { job: 0, ..JobKey::derive(secret, &[b"mpj rendezvous", job.as_bytes()]) }
}

/// Returns the key of a job whose rank 0 has chosen `nonce`.
pub(super) fn job_key(rendezvous: &JobKey, nonce: &[u8; 32]) -> JobKey {
    JobKey::derive(&rendezvous.secret, &[b"mpj job", nonce])
}
