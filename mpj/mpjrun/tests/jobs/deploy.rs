//! The files in `mpj/deploy`: their parts agree, and processes with the variables that they set form a job.

use std::collections::BTreeMap;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use yaml_rust2::{Yaml, YamlLoader};

use super::Test;
use super::env::{assert_pairs, free_port, start};
use super::job::{Job, watch};

pub(crate) const TESTS: &[Test] = &[
    ("indexed_job_of_the_manifest_runs", indexed_job_of_the_manifest_runs),
    ("job_set_of_the_manifest_runs", job_set_of_the_manifest_runs),
    ("stateful_set_of_the_manifest_runs", stateful_set_of_the_manifest_runs),
    ("leader_worker_set_of_the_manifest_runs", leader_worker_set_of_the_manifest_runs),
    ("mpi_job_of_the_manifest_has_a_rank_in_each_slot", mpi_job_of_the_manifest_has_a_rank_in_each_slot),
    ("batch_script_passes_a_secret_to_the_ranks", batch_script_passes_a_secret_to_the_ranks),
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name)
}

fn documents(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&std::fs::read_to_string(file(name)).unwrap()).unwrap()
}

fn text(value: &Yaml) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a string, found {value:?}"))
}

/// Checks that the Service gives each pod a name, even before the pod is ready.
fn check_service(service: &Yaml, name: &Yaml) {
    assert_eq!(text(&service["kind"]), "Service");
    assert_eq!(text(&service["spec"]["clusterIP"]), "None");
    assert_eq!(service["spec"]["publishNotReadyAddresses"].as_bool(), Some(true));
    assert_eq!(service["metadata"]["name"], *name);
}

fn indexed_job_of_the_manifest_runs() {
    let documents = documents("job.yaml");
    let [service, job] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!(text(&job["kind"]), "Job");
    check_service(service, &job["spec"]["template"]["spec"]["subdomain"]);
    assert_eq!(service["spec"]["selector"]["job-name"], job["metadata"]["name"]);
    let names = (text(&job["metadata"]["name"]), text(&service["metadata"]["name"]));
    run_indexed(&job["spec"], &format!("{}-0.{}", names.0, names.1));
}

fn job_set_of_the_manifest_runs() {
    let documents = documents("jobset.yaml");
    let [set] = &documents[..] else { panic!("{documents:?}") };
    let job = &set["spec"]["replicatedJobs"][0];
    assert_eq!((text(&set["kind"]), job["replicas"].as_i64()), ("JobSet", Some(1)));
    let names = (text(&set["metadata"]["name"]), text(&job["name"]));
    run_indexed(&job["template"]["spec"], &format!("{0}-{1}-0-0.{0}", names.0, names.1));
}

fn run_indexed(job: &Yaml, first: &str) {
    assert_eq!((text(&job["completionMode"]), job["backoffLimit"].as_i64()), ("Indexed", Some(0)));
    assert_eq!(job["parallelism"], job["completions"]);
    assert_eq!(text(&job["template"]["spec"]["restartPolicy"]), "Never");
    let size = job["completions"].as_i64().unwrap();
    run_pods(&job["template"], size, Some(first), |rank| vec![("JOB_COMPLETION_INDEX", rank)]);
}

fn stateful_set_of_the_manifest_runs() {
    let documents = documents("statefulset.yaml");
    let [service, set] = &documents[..] else { panic!("{documents:?}") };
    let (spec, pods) = (&set["spec"], &set["spec"]["template"]);
    assert_eq!((text(&set["kind"]), text(&spec["podManagementPolicy"])), ("StatefulSet", "Parallel"));
    check_service(service, &spec["serviceName"]);
    let labels = &pods["metadata"]["labels"];
    assert_eq!([&service["spec"]["selector"], &spec["selector"]["matchLabels"]], [labels, labels]);
    let rank = &pods["spec"]["containers"][0]["env"][0];
    let label = text(&rank["valueFrom"]["fieldRef"]["fieldPath"]);
    assert_eq!((text(&rank["name"]), label), ("MPJ_RANK", "metadata.labels['apps.kubernetes.io/pod-index']"));
    let first = format!("{}-0.{}", text(&set["metadata"]["name"]), text(&spec["serviceName"]));
    let size = spec["replicas"].as_i64().unwrap();
    run_pods(pods, size, Some(&first), |rank| vec![("MPJ_RANK", rank)]);
}

fn leader_worker_set_of_the_manifest_runs() {
    let documents = documents("leaderworkerset.yaml");
    let [set] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!(text(&set["kind"]), "LeaderWorkerSet");
    let group = &set["spec"]["leaderWorkerTemplate"];
    let size = group["size"].as_i64().unwrap();
    // Each test program has its own address of the loopback, because the port is always the same.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let leader = format!("127.77.{high}.{low}");
    run_pods(&group["workerTemplate"], size, None, |rank| {
        vec![
            ("LWS_LEADER_ADDRESS", leader.clone()),
            ("LWS_GROUP_SIZE", size.to_string()),
            ("LWS_WORKER_INDEX", rank),
        ]
    });
}

/// Checks a template of pods, and starts a process for each pod with the variables of the template and those that its
/// controller sets. Only the path of the secret differs, and the address of rank 0 (`first`) if the template states it.
fn run_pods(
    pods: &Yaml,
    size: i64,
    first: Option<&str>,
    of_controller: impl Fn(String) -> Vec<(&'static str, String)>,
) {
    let pod = &pods["spec"];
    let container = &pod["containers"][0];
    let constant = container["env"].as_vec().unwrap().iter().filter(|entry| entry["valueFrom"].is_badvalue());
    let mut variables: BTreeMap<&str, String> =
        constant.map(|entry| (text(&entry["name"]), text(&entry["value"]).to_owned())).collect();
    let port = free_port();
    if let Some(first) = first {
        assert_eq!(variables["MPJ_SIZE"], size.to_string());
        let stated = variables.insert("MPJ_RENDEZVOUS", format!("localhost:{port}"));
        assert_eq!(stated, Some(format!("{first}:7000")));
    }

    let (mount, volume) = (&container["volumeMounts"][0], &pod["volumes"][0]);
    assert_eq!(mount["name"], volume["name"]);
    // Kubernetes reads this number as octal, as YAML 1.1 does; this parser does not.
    assert_eq!(volume["secret"]["defaultMode"].as_i64(), Some(400));
    let key = std::env::temp_dir().join(format!("mpj-key-{}-{port}", std::process::id()));
    let stated = variables.insert("MPJ_SECRET_FILE", key.to_str().unwrap().to_owned());
    assert_eq!(stated, Some(format!("{}/key", text(&mount["mountPath"]))));
    let open = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o400).open(&key);
    std::io::Write::write_all(&mut open.unwrap(), b"0123456789abcdef").unwrap();

    let start_pod = |rank: i64| {
        let own = of_controller(rank.to_string());
        let set: Vec<_> =
            variables.iter().chain(own.iter().map(|(n, v)| (n, v))).map(|(n, v)| (*n, v.as_str())).collect();
        start("pairs", &set)
    };
    let jobs: Vec<Job> = (0..size).map(start_pod).collect();
    let ended: Vec<_> = jobs.into_iter().map(Job::end).collect();
    std::fs::remove_file(key).unwrap();
    assert_pairs(&ended, &"a".repeat(size as usize));
}

fn mpi_job_of_the_manifest_has_a_rank_in_each_slot() {
    let documents = documents("mpijob.yaml");
    let [job] = &documents[..] else { panic!("{documents:?}") };
    let spec = &job["spec"];
    assert_eq!((text(&job["kind"]), text(&spec["mpiImplementation"])), ("MPIJob", "MPICH"));
    let [launcher, worker] = ["Launcher", "Worker"].map(|role| &spec["mpiReplicaSpecs"][role]);
    let [launches, works] = [launcher, worker].map(|part| &part["template"]["spec"]["containers"][0]);
    assert_eq!(launches["image"], works["image"]);
    let words: Vec<&str> = launches["args"].as_vec().unwrap().iter().map(text).collect();
    let slots = spec["slotsPerWorker"].as_i64().unwrap() * worker["replicas"].as_i64().unwrap();
    assert_eq!(words, ["mpiexec", "-n", &slots.to_string(), "/program"]);
}

/// A program named `srun` prints its arguments and the length of the secret.
fn batch_script_passes_a_secret_to_the_ranks() {
    let directory = std::env::temp_dir().join(format!("mpj-srun-{}", std::process::id()));
    let srun = directory.join("srun");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&srun, "#!/bin/sh\necho \"$*, ${#MPJ_SECRET}\"\n").unwrap();
    std::fs::set_permissions(&srun, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let mut script = Command::new("bash");
    script.arg(file("job.sbatch")).args(["./program", "1 2"]).env("PATH", path).stdin(Stdio::null());
    let ended = watch(&mut script).0.end();
    std::fs::remove_dir_all(directory).unwrap();
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["--mpi=none ./program 1 2, 44".to_owned()][..]));
}
