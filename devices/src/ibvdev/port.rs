//! Chooses the device, port and address of a rank.

use std::sync::Arc;

use super::verbs::{Context, Port, names};
use super::{IBV_DEVICE, IBV_GID_INDEX, IBV_MTU, IBV_PKEY_INDEX, IBV_PORT, IBV_SL};
use crate::config::{Config, PREFIX, Parameter};

pub(super) const AUTO: &str = "auto";

/// The bits of a partition key that identify the partition. The remaining bit marks full members.
const PARTITION_BITS: u16 = 0x7fff;

/// The highest service level on Ethernet, where it is the priority of a packet.
const MAX_PRIORITY: u8 = 7;

/// A port of a device, and the attributes of the packets that this rank sends through it.
#[derive(Clone, Debug)]
pub(super) struct PortSelection {
    pub(super) context: Arc<Context>,
    pub(super) port: Port,
    /// The index of `gid` in the port's table, if packets carry a global address.
    pub(super) gid_index: Option<u8>,
    pub(super) gid: [u8; 16],
    /// The verbs code of the MTU.
    pub(super) mtu: u8,
    pub(super) pkey_index: u16,
    pub(super) service_level: u8,
}

impl PortSelection {
    /// Selects the device, the port and the GID that the configuration names. The defaults are the first device that
    /// has a port with a link, and its first port with a link; on Ethernet, the first RoCE v2 GID of an IPv4 address;
    /// on InfiniBand, no GID index.
    pub(super) fn new(config: &Config) -> Result<Self, String> {
        let name = config.text(&IBV_DEVICE);
        let wanted = config.number(&IBV_PORT) as u8;
        let (context, port) = if name == AUTO {
            // If no device can be used, report why the first one cannot.
            let mut reasons = Vec::new();
            let found = names()?.iter().find_map(|name| {
                let tried = Context::open(name).and_then(|context| active_port(context, wanted));
                tried.map_err(|why| reasons.push(why)).ok()
            });
            found.ok_or_else(|| reasons.swap_remove(0))?
        } else {
            active_port(
                Context::open(name).map_err(|why| format!("{}: {why}", setting(&IBV_DEVICE, name)))?,
                wanted,
            )?
        };
        let (gid_index, gid) = address(&context, &port, config.text(&IBV_GID_INDEX))?;
        let at = format!("port {} of {}", port.number, context.name());
        let pkey_index = config.number(&IBV_PKEY_INDEX) as u16;
        let has_pkey = |index| {
            context.pkey(port.number, index).is_ok_and(|pkey| u16::from_be(pkey) & PARTITION_BITS != 0)
        };
        if pkey_index >= port.pkeys || !has_pkey(pkey_index) {
            let named = setting(&IBV_PKEY_INDEX, &pkey_index.to_string());
            return Err(format!(
                "{named}: {at} has no partition key at that index (table size {})",
                port.pkeys
            ));
        }
        let service_level = config.number(&IBV_SL) as u8;
        if port.is_ethernet && service_level > MAX_PRIORITY {
            let named = setting(&IBV_SL, &service_level.to_string());
            return Err(format!("{named}: {at} is Ethernet: service levels are 0 to {MAX_PRIORITY}"));
        }
        let mtu = match config.choice(&IBV_MTU) {
            0 => port.mtu,
            mtu => mtu.min(port.mtu),
        };
        Ok(PortSelection { context, port, gid_index, gid, mtu, pkey_index, service_level })
    }
}

fn setting(parameter: &dyn Parameter, value: &str) -> String {
    format!("{PREFIX}{}={value}", parameter.name())
}

/// Returns port `wanted`, or the first port that has a link if `wanted` is 0.
///
/// # Errors
/// The port has no link or does not exist, or the query of the device fails.
fn active_port(context: Arc<Context>, wanted: u8) -> Result<(Arc<Context>, Port), String> {
    let name = context.name();
    let limits = context.limits().map_err(|e| format!("{name} does not answer: {e}"))?;
    if wanted > limits.ports {
        let named = setting(&IBV_PORT, &wanted.to_string());
        return Err(format!("{named}: {name} has ports 1 to {}", limits.ports));
    }
    let all = if wanted == 0 { 1..=limits.ports } else { wanted..=wanted };
    let found = all.clone().find_map(|number| context.port(number).ok().filter(|port| port.is_active));
    match found {
        Some(port) => Ok((context, port)),
        None if wanted == 0 => Err(format!("no port of {name} has a link")),
        None => Err(format!("port {wanted} of {name} has no link")),
    }
}

/// Returns the index and the bytes of the GID to use: the GID `named` by the user, or the default for the link layer.
fn address(context: &Context, port: &Port, named: &str) -> Result<(Option<u8>, [u8; 16]), String> {
    let gid = |index: u32| context.gid(port.number, index).ok().filter(|gid| *gid != [0; 16]);
    let at = format!("port {} of {}", port.number, context.name());
    // An address vector has one byte for the index.
    let count = port.gids.min(256);
    if named != AUTO {
        let index = named.parse::<u8>().ok().filter(|index| u32::from(*index) < count);
        let found = index.and_then(|index| Some((Some(index), gid(index.into())?)));
        return found
            .ok_or_else(|| format!("{}: {at} has no GID at that index", setting(&IBV_GID_INDEX, named)));
    }
    if !port.is_ethernet {
        return Ok((None, gid(0).unwrap_or([0; 16])));
    }
    let is_routable =
        |index: &u32| gid(*index).is_some_and(|gid| is_ipv4(&gid)) && is_roce_v2(context, port, *index);
    let found = (0..count).find(is_routable).and_then(|index| Some((u8::try_from(index).ok(), gid(index)?)));
    found.ok_or_else(|| {
        format!(
            "{at} has no GID of RoCE v2 for an IPv4 address: add an IPv4 address to its interface, or set {PREFIX}{}",
            IBV_GID_INDEX.name
        )
    })
}

fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid[..10] == [0; 10] && gid[10..12] == [0xff; 2]
}

/// Returns whether packets from a GID are RoCE v2. It reads `/sys`, because old libraries have no call for it.
fn is_roce_v2(context: &Context, port: &Port, index: u32) -> bool {
    let (name, number) = (context.name(), port.number);
    let file = format!("/sys/class/infiniband/{name}/ports/{number}/gid_attrs/types/{index}");
    std::fs::read_to_string(file).is_ok_and(|kind| kind.trim() == "RoCE v2")
}

/// Returns whether a text is a valid value of `IBV_GID_INDEX`.
pub(super) fn is_gid_index(text: &str) -> bool {
    text == AUTO || text.parse::<u8>().is_ok()
}
