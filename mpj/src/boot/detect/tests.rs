use super::*;

const CONTROL: &[(&str, &str)] = &[("MPJ_CONTROL", "3:4")];
const PMI: &[(&str, &str)] = &[("PMI_FD", "3"), ("PMI_RANK", "0"), ("PMI_SIZE", "4")];
const PMI_ALONE: &[(&str, &str)] = &[("PMI_FD", "3"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
const PORT: &[(&str, &str)] = &[("PMI_PORT", "h0:1"), ("PMI_ID", "0")];
const PMIX: &[(&str, &str)] =
    &[("PMIX_NAMESPACE", "1"), ("PMIX_RANK", "0"), ("PMIX_SERVER_URI4", "1.0;tcp4://127.0.0.1:1")];
const MEET: &[(&str, &str)] = &[("MPJ_RANK", "0"), ("MPJ_SIZE", "4"), ("MPJ_RENDEZVOUS", "h0:1")];
const MEET_ALONE: &[(&str, &str)] = &[("MPJ_RANK", "0"), ("MPJ_SIZE", "1"), ("MPJ_RENDEZVOUS", "h0:1")];
const INVALID: &[(&str, &str)] = &[("MPJ_RENDEZVOUS", "h0:1")];

/// Detects the launcher of a process with the variables of two launchers. The launchers in `alone` have started one
/// rank, which a process learns when it joins. `Some(None)` is a process that was started alone.
fn detect_with(
    variables: [&[(&str, &str)]; 2],
    alone: &[LauncherKind],
) -> Result<Option<Option<LauncherKind>>, String> {
    let variables = variables.concat();
    let get = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, text)| (*text).to_owned());
    let join = |kind| Ok(Some(if alone.contains(&kind) { Vec::new() } else { vec![kind] }));
    Ok(choose(&get, join)?.map(|ranks| ranks.first().copied()))
}

#[test]
fn first_launcher_of_several_ranks_is_joined() {
    use LauncherKind::*;
    for (outer, inner, alone, found) in [
        (PMI, CONTROL, &[][..], Some(Some(Mpjrun))),
        (PMI, PMIX, &[], Some(Some(Pmi1))),
        (PORT, PMIX, &[], Some(Some(Pmi1))),
        (PMI, MEET, &[], Some(Some(Pmi1))),
        (PMIX, MEET, &[], Some(Some(Pmix))),
        // The variables that come later are not even read.
        (PMI, INVALID, &[], Some(Some(Pmi1))),
        (PMIX, INVALID, &[], Some(Some(Pmix))),
        // A launcher in a step of one rank.
        (PMI_ALONE, CONTROL, &[], Some(Some(Mpjrun))),
        (PMI_ALONE, PMIX, &[], Some(Some(Pmix))),
        (PMI_ALONE, MEET, &[], Some(Some(Env))),
        (PORT, PMIX, &[Pmi1], Some(Some(Pmix))),
        (PORT, MEET, &[Pmi1], Some(Some(Env))),
        (PMIX, MEET, &[Pmix], Some(Some(Env))),
        (MEET_ALONE, PMI, &[], Some(Some(Pmi1))),
        // All have started one rank.
        (PMI_ALONE, &[], &[], Some(None)),
        (PMI_ALONE, PMIX, &[Pmix], Some(None)),
        (PORT, MEET_ALONE, &[Pmi1], Some(None)),
        (PMIX, MEET_ALONE, &[Pmix], Some(None)),
        (MEET_ALONE, &[], &[], Some(None)),
        (&[], &[], &[], None),
    ] {
        assert_eq!(detect_with([outer, inner], alone), Ok(found), "{outer:?} {inner:?} {alone:?}");
    }
    let error = detect_with([PMI_ALONE, INVALID], &[]).unwrap_err();
    assert!(error.contains("no variables state the rank of this process"), "{error}");
}
