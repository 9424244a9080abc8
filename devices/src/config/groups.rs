//! The parameters of this crate.

use super::{CONFIG_FILE, ParameterGroup};
pub use crate::cores::CORES;
pub use crate::data_path::DATA_PATH;
pub use crate::engine::{EAGER_CREDIT, EAGER_CREDIT_TOTAL, PROGRESS};
pub use crate::ibvdev::{
    IBV_DEVICE, IBV_EAGER_LIMIT, IBV_GID_INDEX, IBV_MTU, IBV_PKEY_INDEX, IBV_PORT, IBV_RDMA_READ_MIN,
    IBV_REGISTER_MIN, IBV_SEND_WINDOW, IBV_SL,
};
pub use crate::niodev::{
    NIO_EAGER_LIMIT, NIO_INTERFACES, NIO_LISTEN_ADDRESS, NIO_MAX_SEND_SIZE, NIO_PORTS, NIO_SECURITY,
};
pub use crate::shmdev::{SHM_EAGER_LIMIT, SHM_FRAGMENTS, SHM_POOL_MIB, SHM_RING_KIB};
pub use crate::smdev::{SM_EAGER_LIMIT, SM_FRAGMENTS};
pub use crate::trace::{TRACE, TRACE_MAX_EVENTS};
pub use crate::wait::{SPIN_US, YIELD_US};

/// The parameters of the engine and the devices.
pub const GROUPS: &[ParameterGroup] = &[
    ParameterGroup {
        name: "general",
        parameters: &[
            &DATA_PATH,
            &SPIN_US,
            &YIELD_US,
            &PROGRESS,
            &EAGER_CREDIT_TOTAL,
            &EAGER_CREDIT,
            &CONFIG_FILE,
        ],
    },
    ParameterGroup { name: "start-up", parameters: &[&CORES] },
    ParameterGroup { name: "reports", parameters: &[&TRACE, &TRACE_MAX_EVENTS] },
    ParameterGroup { name: "smdev", parameters: &[&SM_EAGER_LIMIT, &SM_FRAGMENTS] },
    ParameterGroup {
        name: "shmdev",
        parameters: &[&SHM_EAGER_LIMIT, &SHM_FRAGMENTS, &SHM_RING_KIB, &SHM_POOL_MIB],
    },
    ParameterGroup {
        name: "niodev",
        parameters: &[
            &NIO_EAGER_LIMIT,
            &NIO_MAX_SEND_SIZE,
            &NIO_LISTEN_ADDRESS,
            &NIO_INTERFACES,
            &NIO_PORTS,
            &NIO_SECURITY,
        ],
    },
    ParameterGroup {
        name: "ibvdev",
        parameters: &[
            &IBV_DEVICE,
            &IBV_PORT,
            &IBV_GID_INDEX,
            &IBV_MTU,
            &IBV_PKEY_INDEX,
            &IBV_SL,
            &IBV_EAGER_LIMIT,
            &IBV_RDMA_READ_MIN,
            &IBV_REGISTER_MIN,
            &IBV_SEND_WINDOW,
        ],
    },
];

// With the default settings, every eager message fits into the largest credit.
const _: () = assert!(SM_EAGER_LIMIT.default <= EAGER_CREDIT.default);
const _: () = assert!(SHM_EAGER_LIMIT.default <= EAGER_CREDIT.default);
const _: () = assert!(NIO_EAGER_LIMIT.default <= EAGER_CREDIT.default);
const _: () = assert!(IBV_EAGER_LIMIT.default <= EAGER_CREDIT.default);
