//! Launchers that `mpj` does not support, recognized by the environment variables that they set.

use super::detect::Variables;
use crate::config::PREFIX;

/// A launcher, and the variables in which it passes a process its rank and the number of ranks. In each list, only the
/// first variable that is set is read.
struct Launcher {
    name: &'static str,
    rank: &'static [&'static str],
    size: &'static [&'static str],
    /// Returns false if the variables show that this launcher did not start this process itself.
    started_this: fn(Variables<'_>) -> bool,
}

/// The known launchers. The specific ones come first, because many of them also set the variables of PMI.
const LAUNCHERS: &[Launcher] = &[
    Launcher {
        name: "Slurm's srun",
        rank: &["SLURM_PROCID"],
        // The second variable is the number of tasks of the job; a step can use fewer.
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        started_this: is_step,
    },
    Launcher {
        name: "Open MPI's mpirun without PMIx",
        rank: &["OMPI_COMM_WORLD_RANK"],
        size: &["OMPI_COMM_WORLD_SIZE"],
        started_this: |_| true,
    },
    Launcher {
        name: "MVAPICH's mpirun_rsh",
        rank: &["MV2_COMM_WORLD_RANK"],
        size: &["MV2_COMM_WORLD_SIZE"],
        started_this: |_| true,
    },
    Launcher { name: "Flux", rank: &["FLUX_TASK_RANK"], size: &["FLUX_JOB_SIZE"], started_this: |_| true },
    Launcher {
        name: "jsrun",
        rank: &["JSM_NAMESPACE_RANK"],
        size: &["JSM_NAMESPACE_SIZE"],
        started_this: |_| true,
    },
    Launcher {
        name: "a launcher with PMI, such as Hydra's mpiexec (MPICH, Intel MPI)",
        rank: &["PMI_RANK", "PMI_ID"],
        size: &["PMI_SIZE"],
        started_this: |_| true,
    },
];

/// Rejects a process that an unsupported launcher has started, unless it is the only process of its job.
///
/// # Errors
/// A text that names the launcher, and says what to do.
pub(super) fn reject(get: Variables<'_>) -> Result<(), String> {
    detect_unsupported(get).map_or(Ok(()), Err)
}

fn detect_unsupported(get: Variables<'_>) -> Option<String> {
    let first = |names: &'static [&'static str]| names.iter().find_map(|name| Some((*name, get(name)?)));
    let mut unsure = None;
    for launcher in LAUNCHERS.iter().filter(|launcher| (launcher.started_this)(get)) {
        let size = first(launcher.size);
        let Some(set) = size.clone().or_else(|| first(launcher.rank)) else { continue };
        match size.map(|(_, size)| size.parse::<u64>()) {
            Some(Ok(size)) if size > 1 => return Some(describe(launcher, &set, &size.to_string())),
            // A process that was started alone is a job of its own, even if the variables of other launchers are set.
            Some(Ok(_)) => return None,
            Some(Err(_)) | None => unsure = unsure.or(Some((launcher, set))),
        }
    }
    unsure.map(|(launcher, set)| describe(launcher, &set, "N"))
}

/// Returns whether this process is a task that `srun` has started.
///
/// A batch script and its programs have the variables of rank 0 and the number of tasks of the whole job, but no step.
fn is_step(get: Variables<'_>) -> bool {
    get("SLURM_PROCID").is_some() && (get("SLURM_STEP_ID").is_some() || get("SLURM_JOB_ID").is_none())
}

fn describe(launcher: &Launcher, (name, value): &(&str, String), size: &str) -> String {
    format!(
        "started by {} ({name}={value}), which mpj does not support: use `mpjrun -n {size} PROGRAM`; to run each process \
         as a job of its own, set {PREFIX}LAUNCHER=none",
        launcher.name,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn under(variables: &[(&str, &str)]) -> Option<String> {
        detect_unsupported(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn launcher_of_several_processes_is_rejected_by_name() {
        for (variables, parts) in [
            (
                &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4")][..],
                ["Slurm's srun (SLURM_NTASKS=4)", "mpjrun -n 4"],
            ),
            (
                &[
                    ("SLURM_JOB_ID", "7"),
                    ("SLURM_STEP_ID", "0"),
                    ("SLURM_PROCID", "0"),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("PMI_SIZE", "2"),
                ],
                ["Slurm's srun (SLURM_STEP_NUM_TASKS=2)", "mpjrun -n 2"],
            ),
            (
                &[("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_RANK", "0")],
                ["Open MPI's mpirun without PMIx (OMPI_COMM_WORLD_SIZE=3)", "mpjrun -n 3"],
            ),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "8")], ["Hydra's mpiexec", "mpjrun -n 8"]),
            (&[("PMI_PORT", "host:1"), ("PMI_ID", "3")], ["with PMI,", "(PMI_ID=3)"]),
            (&[("FLUX_JOB_SIZE", "2"), ("FLUX_TASK_RANK", "1")], ["Flux", "mpjrun -n 2"]),
            (&[("MV2_COMM_WORLD_SIZE", "2")], ["MVAPICH", "mpjrun -n 2"]),
            (&[("JSM_NAMESPACE_SIZE", "2")], ["jsrun", "mpjrun -n 2"]),
            (&[("PMI_SIZE", "many")], ["PMI_SIZE=many", "mpjrun -n N"]),
        ] {
            let why = under(variables).unwrap_or_else(|| panic!("{variables:?}"));
            assert!(parts.iter().all(|part| why.contains(part)), "{variables:?}: {why}");
            assert!(why.contains("MPJ_LAUNCHER=none"), "{why}");
        }
    }

    #[test]
    fn single_process_is_accepted() {
        for variables in [
            &[][..],
            &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("SLURM_STEP_ID", "0")],
            // A batch script with four tasks, and the programs that it runs.
            &[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")],
            // The shell of `salloc` is a step with one task.
            &[
                ("SLURM_JOB_ID", "7"),
                ("SLURM_STEP_ID", "4294967290"),
                ("SLURM_PROCID", "0"),
                ("SLURM_STEP_NUM_TASKS", "1"),
                ("SLURM_NTASKS", "4"),
            ],
            &[("OMPI_COMM_WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0")],
            &[("PMI_RANK", "0"), ("PMI_SIZE", "1")],
        ] {
            assert_eq!(under(variables), None, "{variables:?}");
        }
    }

    #[test]
    fn other_launcher_in_a_batch_script_is_rejected() {
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")];
        let hydra = [&batch[..], &[("PMI_RANK", "1"), ("PMI_SIZE", "4")]].concat();
        assert!(under(&hydra).is_some_and(|why| why.contains("Hydra")));
    }
}
