//! The error classes of MPI.

use std::fmt;

macro_rules! error_classes {
    ($($(#[$doc:meta])* $class:ident = $number:literal, $name:literal;)*) => {
        /// The error classes of MPI 4.1 and of the MPI 5.0 ABI, with the numbers of that ABI.
        ///
        /// The errors of this library have the classes without the remark "not raised here". The others are for
        /// interfaces on top of it. `MPI_SUCCESS`, 0, is not an error.
        ///
        /// ```
        /// use mpj::ErrorClass;
        ///
        /// assert_eq!(ErrorClass::Truncate.number(), 15);
        /// assert_eq!(ErrorClass::from_number(15), Some(ErrorClass::Truncate));
        /// assert_eq!(ErrorClass::Truncate.to_string(), "MPI_ERR_TRUNCATE");
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(i32)]
        #[non_exhaustive]
        pub enum ErrorClass {
            $($(#[$doc])* $class = $number,)*
        }

        impl ErrorClass {
            /// All classes, in the order of their numbers.
            pub const ALL: &'static [ErrorClass] = &[$(ErrorClass::$class),*];

            /// Returns the name in MPI, such as `MPI_ERR_TRUNCATE`.
            pub const fn mpi_name(self) -> &'static str {
                match self {
                    $(ErrorClass::$class => $name,)*
                }
            }
        }
    };
}

error_classes! {
    /// A buffer that cannot be used.
    Buffer = 1, "MPI_ERR_BUFFER";
    /// A count that is too large or does not fit the other arguments.
    Count = 2, "MPI_ERR_COUNT";
    /// A datatype that does not match or cannot be used, or an invalid value of a type.
    Type = 3, "MPI_ERR_TYPE";
    /// A tag outside 0 to 2,147,483,647.
    Tag = 4, "MPI_ERR_TAG";
    /// A communicator that was freed, exists already, or does not allow the call.
    Comm = 5, "MPI_ERR_COMM";
    /// A rank outside the communicator or the group, or one that is listed twice.
    Rank = 6, "MPI_ERR_RANK";
    /// A request that was cancelled or dropped, is in the wrong state for the call, or cannot return its buffer.
    Request = 7, "MPI_ERR_REQUEST";
    /// A root outside the communicator.
    Root = 8, "MPI_ERR_ROOT";
    /// A group that does not fit the communicator, or differs between its members.
    Group = 9, "MPI_ERR_GROUP";
    /// An operation that is not defined for the type or the call.
    Op = 10, "MPI_ERR_OP";
    /// A topology that a communicator does not have, or whose description is invalid or differs between ranks.
    Topology = 11, "MPI_ERR_TOPOLOGY";
    /// Dimensions or coordinates that are invalid or do not fit the ranks.
    Dims = 12, "MPI_ERR_DIMS";
    /// Any other argument.
    Arg = 13, "MPI_ERR_ARG";
    /// An unknown error; not raised here.
    Unknown = 14, "MPI_ERR_UNKNOWN";
    /// A message longer than its receive buffer or the given limit, or a partitioned message or packed data of the
    /// wrong length.
    Truncate = 15, "MPI_ERR_TRUNCATE";
    /// Anything else.
    Other = 16, "MPI_ERR_OTHER";
    /// A broken invariant of this library: please report it.
    Intern = 17, "MPI_ERR_INTERN";
    /// A pending request of a wait for several; not raised here, where each request has its own outcome.
    Pending = 18, "MPI_ERR_PENDING";
    /// The error is in the statuses; not raised here, where each request has its own outcome.
    InStatus = 19, "MPI_ERR_IN_STATUS";
    /// A file without permission; not raised here.
    Access = 20, "MPI_ERR_ACCESS";
    /// An invalid mode of a file; not raised here.
    Amode = 21, "MPI_ERR_AMODE";
    /// An invalid assertion of a window; not raised here.
    Assert = 22, "MPI_ERR_ASSERT";
    /// An invalid name of a file; not raised here.
    BadFile = 23, "MPI_ERR_BAD_FILE";
    /// An invalid address of memory to free; not raised here.
    Base = 24, "MPI_ERR_BASE";
    /// A failed conversion of a file's data; not raised here.
    Conversion = 25, "MPI_ERR_CONVERSION";
    /// An invalid displacement of a window; not raised here.
    Disp = 26, "MPI_ERR_DISP";
    /// A second definition of a data representation; not raised here.
    DupDatarep = 27, "MPI_ERR_DUP_DATAREP";
    /// A file that exists; not raised here.
    FileExists = 28, "MPI_ERR_FILE_EXISTS";
    /// A file that is open; not raised here.
    FileInUse = 29, "MPI_ERR_FILE_IN_USE";
    /// An invalid file handle; not raised here.
    File = 30, "MPI_ERR_FILE";
    /// An empty or too long key of an [`Info`](crate::Info).
    InfoKey = 31, "MPI_ERR_INFO_KEY";
    /// A key that an info does not have; not raised here, where it is `None`.
    InfoNokey = 32, "MPI_ERR_INFO_NOKEY";
    /// A too long value of an [`Info`](crate::Info).
    InfoValue = 33, "MPI_ERR_INFO_VALUE";
    /// An invalid info handle; not raised here.
    Info = 34, "MPI_ERR_INFO";
    /// A failed operation on a file; not raised here.
    Io = 35, "MPI_ERR_IO";
    /// An invalid attribute key; not raised here.
    Keyval = 36, "MPI_ERR_KEYVAL";
    /// An invalid lock of a window; not raised here.
    Locktype = 37, "MPI_ERR_LOCKTYPE";
    /// A service name that is not published; not raised here.
    Name = 38, "MPI_ERR_NAME";
    /// Memory, or the space for one more message, is exhausted.
    NoMem = 39, "MPI_ERR_NO_MEM";
    /// A collective argument of a file that differs between ranks; not raised here.
    NotSame = 40, "MPI_ERR_NOT_SAME";
    /// A full file system; not raised here.
    NoSpace = 41, "MPI_ERR_NO_SPACE";
    /// A file that does not exist; not raised here.
    NoSuchFile = 42, "MPI_ERR_NO_SUCH_FILE";
    /// An invalid port; not raised here.
    Port = 43, "MPI_ERR_PORT";
    /// An exceeded quota of a file system; not raised here.
    Quota = 44, "MPI_ERR_QUOTA";
    /// A file that cannot be written; not raised here.
    ReadOnly = 45, "MPI_ERR_READ_ONLY";
    /// Memory that cannot be attached to a window; not raised here.
    RmaAttach = 46, "MPI_ERR_RMA_ATTACH";
    /// Conflicting accesses to a window; not raised here.
    RmaConflict = 47, "MPI_ERR_RMA_CONFLICT";
    /// Memory outside a window; not raised here.
    RmaRange = 48, "MPI_ERR_RMA_RANGE";
    /// Memory that cannot be shared; not raised here.
    RmaShared = 49, "MPI_ERR_RMA_SHARED";
    /// A wrong synchronisation of a window; not raised here.
    RmaSync = 50, "MPI_ERR_RMA_SYNC";
    /// A service name that cannot be published; not raised here.
    Service = 51, "MPI_ERR_SERVICE";
    /// An invalid size of a window; not raised here.
    Size = 52, "MPI_ERR_SIZE";
    /// Processes that cannot be started; not raised here.
    Spawn = 53, "MPI_ERR_SPAWN";
    /// An unknown data representation; not raised here.
    UnsupportedDatarep = 54, "MPI_ERR_UNSUPPORTED_DATAREP";
    /// An operation that a file does not have; not raised here.
    UnsupportedOperation = 55, "MPI_ERR_UNSUPPORTED_OPERATION";
    /// An invalid window; not raised here.
    Win = 56, "MPI_ERR_WIN";
    /// A window of the wrong kind; not raised here.
    RmaFlavor = 57, "MPI_ERR_RMA_FLAVOR";
    /// A rank that has died, cannot be reached, or takes no further part in the job, the communicator or the operation.
    ProcAborted = 58, "MPI_ERR_PROC_ABORTED";
    /// A value that does not fit the type of a C interface; not raised here.
    ValueTooLarge = 59, "MPI_ERR_VALUE_TOO_LARGE";
    /// An invalid session; not raised here.
    Session = 60, "MPI_ERR_SESSION";
    /// An invalid error handler; not raised here.
    Errhandler = 61, "MPI_ERR_ERRHANDLER";
    /// A C interface of another version; not raised here.
    Abi = 62, "MPI_ERR_ABI";
}

impl ErrorClass {
    /// Returns the number of the class in the MPI 5.0 ABI.
    pub const fn number(self) -> i32 {
        self as i32
    }

    /// Returns the class with this number; `None` if there is no such class.
    pub fn from_number(number: i32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        ErrorClass::ALL.get(index).copied().filter(|class| class.number() == number)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mpi_name())
    }
}
