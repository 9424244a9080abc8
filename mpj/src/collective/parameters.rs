//! The parameters `MPJ_COLL_<OPERATION>`: the rules that select the algorithm of an operation.
//!
//! All ranks must select the same algorithm, except for alltoallv and alltoallw, whose algorithms all send the same
//! messages. If the digest of a call contains the algorithm (`README.md` says which do), ranks detect a mismatch.

use mpj_collectives::{Operation, Rules};
use mpj_devices::config::{Config, Parameter, Value};

static RULES: [AlgorithmRules; 16] = [
    AlgorithmRules { name: "COLL_ALLGATHER", operation: Operation::Allgather },
    AlgorithmRules { name: "COLL_ALLREDUCE", operation: Operation::Allreduce },
    AlgorithmRules { name: "COLL_ALLTOALL", operation: Operation::Alltoall },
    AlgorithmRules { name: "COLL_ALLTOALLW", operation: Operation::Alltoallw },
    AlgorithmRules { name: "COLL_BARRIER", operation: Operation::Barrier },
    AlgorithmRules { name: "COLL_BCAST", operation: Operation::Bcast },
    AlgorithmRules { name: "COLL_EXSCAN", operation: Operation::Exscan },
    AlgorithmRules { name: "COLL_GATHER", operation: Operation::Gather },
    AlgorithmRules { name: "COLL_NEIGHBOR_ALLGATHER", operation: Operation::NeighborAllgather },
    AlgorithmRules { name: "COLL_NEIGHBOR_ALLTOALL", operation: Operation::NeighborAlltoall },
    AlgorithmRules { name: "COLL_NEIGHBOR_ALLTOALLW", operation: Operation::NeighborAlltoallw },
    AlgorithmRules { name: "COLL_REDUCE", operation: Operation::Reduce },
    AlgorithmRules { name: "COLL_REDUCE_SCATTER", operation: Operation::ReduceScatter },
    AlgorithmRules { name: "COLL_REDUCE_SCATTER_BLOCK", operation: Operation::ReduceScatterBlock },
    AlgorithmRules { name: "COLL_SCAN", operation: Operation::Scan },
    AlgorithmRules { name: "COLL_SCATTER", operation: Operation::Scatter },
];

pub(crate) const PARAMETERS: &[&dyn Parameter] = &{
    let mut parameters: [&dyn Parameter; RULES.len()] = [&RULES[0]; RULES.len()];
    let mut at = 1;
    while at < RULES.len() {
        parameters[at] = &RULES[at];
        at += 1;
    }
    parameters
};

#[derive(Debug)]
struct AlgorithmRules {
    name: &'static str,
    operation: Operation,
}

impl Parameter for AlgorithmRules {
    fn name(&self) -> &'static str {
        self.name
    }

    fn default(&self) -> String {
        Rules::default_of(self.operation).to_owned()
    }

    fn range(&self) -> String {
        mpj_collectives::algorithms_of(self.operation).map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn help(&self) -> &'static str {
        match Rules::can_have_bytes(self.operation) {
            true => {
                "the first algorithm that fits, ALGORITHM[:ranks=A-B][:hosts=A-B][:bytes=A-B],...; same on all ranks"
            }
            false => {
                "the first algorithm that fits, ALGORITHM[:ranks=A-B][:hosts=A-B],...; same on all ranks"
            }
        }
    }

    fn parse(&self, text: &str) -> Result<Value, String> {
        Rules::default().set(self.operation, text)?;
        Ok(Value::Text(text.to_owned()))
    }
}

/// Returns the rules of all operations.
pub(crate) fn rules(config: &Config) -> Rules {
    let mut rules = Rules::default();
    for parameter in &RULES {
        if let Some(Value::Text(text)) = config.value(parameter) {
            let set = rules.set(parameter.operation, text);
            debug_assert_eq!(set, Ok(()), "the value was checked when it was set");
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use mpj_collectives::{ALGORITHMS, Arguments};

    use super::*;

    #[test]
    fn every_operation_with_algorithms_has_a_parameter() {
        for algorithm in ALGORITHMS {
            let named =
                PARAMETERS.iter().zip(&RULES).find(|(_, rules)| rules.operation == algorithm.operation);
            let name = format!("COLL_{}", algorithm.operation.name().to_uppercase());
            assert_eq!(named.map(|(parameter, _)| parameter.name()), Some(&*name));
        }
    }

    #[test]
    fn parameter_replaces_the_rules_of_its_operation() {
        let mut config = Config::default();
        let of = |name| *PARAMETERS.iter().find(|parameter| parameter.name() == name).expect("a parameter");
        config.set_text(of("COLL_BCAST"), "binomial:ranks=4,linear").unwrap();
        let error = config.set_text(of("COLL_SCAN"), "ring").unwrap_err().why;
        assert!(
            error.starts_with("MPJ_COLL_SCAN=ring has the unknown algorithm 'ring'; scan has linear, "),
            "{error}"
        );
        let error = config.set_text(of("COLL_GATHER"), "linear:bytes=1-").unwrap_err().why;
        assert!(!error.contains("bytes=A-B"), "{error}");
        let rules = rules(&config);
        let selected = |operation, ranks| rules.select(operation, &Arguments::new(0, ranks), 8).unwrap().name;
        assert_eq!([4, 5].map(|ranks| selected(Operation::Bcast, ranks)), ["binomial", "linear"]);
        assert_eq!([4, 9].map(|ranks| selected(Operation::Scan, ranks)), ["linear", "recursive_doubling"]);
    }
}
