//! One event of a trace, and its format: a line of JSON in the trace event format of Chrome, which Perfetto reads.

use std::fmt::Write;

use super::{Flow, Names, Timestamp};

/// The arguments of an event; unused ones have the name "".
pub(super) type Args = [(&'static str, ArgValue); ARGS];

pub(super) const ARGS: usize = 6;

/// The argument that contains the context of a communicator. The communicator's name is written after it.
pub(super) const CONTEXT: &str = "context";

pub(super) const NONE: (&str, ArgValue) = ("", ArgValue::Number(0));

#[derive(Clone, Copy, Debug)]
pub(crate) enum ArgValue {
    Number(u64),
    Signed(i32),
    Text(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    Slice {
        end: Timestamp,
    },
    /// A message starts in the enclosing slice.
    Start(Flow),
    /// A message ends in the enclosing slice.
    Finish(Flow),
    Instant,
    Count,
    /// The name of the thread, which is in `text`.
    Thread,
}

#[derive(Clone, Debug)]
pub(super) struct TraceEvent {
    pub(super) at: Timestamp,
    pub(super) kind: EventKind,
    pub(super) thread: u32,
    /// The parts of the event's name, which are concatenated.
    pub(super) name: [&'static str; 2],
    pub(super) category: &'static str,
    pub(super) args: Args,
    /// A text that must be quoted: the name of a thread, or the reason of an event, such as a failure.
    pub(super) text: Option<Box<str>>,
}

impl TraceEvent {
    /// Writes the event as a line of an array, with a comma at the end.
    pub(super) fn write(&self, rank: u32, names: &Names, out: &mut String) {
        let TraceEvent { at, kind, thread, name: [first, second], category, text, .. } = self;
        match kind {
            EventKind::Thread => return name_thread(rank, *thread, text.as_deref(), out),
            EventKind::Start(flow) | EventKind::Finish(flow) => {
                put(out, format_args!("{{\"name\":\"{} to {}\",\"id\":{}", flow.from, flow.to, flow.order));
            }
            _ => put(out, format_args!("{{\"name\":\"{first}{second}\"")),
        }
        if !category.is_empty() {
            put(out, format_args!(",\"cat\":\"{category}\""));
        }
        let phase = match kind {
            EventKind::Slice { .. } => "X",
            EventKind::Start(_) => "s",
            EventKind::Finish(_) => "f\",\"bp\":\"e",
            EventKind::Instant => "i\",\"s\":\"t",
            EventKind::Count | EventKind::Thread => "C",
        };
        put(out, format_args!(",\"ph\":\"{phase}\",\"pid\":{rank},\"tid\":{thread},\"ts\":{}", Micros(at.0)));
        if let EventKind::Slice { end } = kind {
            put(out, format_args!(",\"dur\":{}", Micros(end.0.saturating_sub(at.0))));
        }
        if !matches!(kind, EventKind::Start(_) | EventKind::Finish(_)) {
            self.write_args(names, out);
        }
        out.push_str("},\n");
    }

    fn write_args(&self, names: &Names, out: &mut String) {
        out.push_str(",\"args\":{");
        let mut comma = "";
        for (name, value) in self.args.iter().filter(|(name, _)| !name.is_empty()) {
            match value {
                ArgValue::Number(number) => put(out, format_args!("{comma}\"{name}\":{number}")),
                ArgValue::Signed(number) => put(out, format_args!("{comma}\"{name}\":{number}")),
                ArgValue::Text(text) => put(out, format_args!("{comma}\"{name}\":\"{text}\"")),
            }
            comma = ",";
            if let (CONTEXT, ArgValue::Number(context)) = (*name, value)
                && let Some(name) = names.get(context)
            {
                out.push_str(",\"communicator\":");
                quote(name, out);
            }
        }
        if let Some(why) = &self.text {
            put(out, format_args!("{comma}\"why\":"));
            quote(why, out);
        }
        out.push('}');
    }
}

/// Nanoseconds, written as microseconds.
struct Micros(u64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Writes the name and the position of a rank as two lines of an array, each with a comma at the end.
pub(super) fn name_rank(rank: u32, suffix: &str, out: &mut String) {
    put(
        out,
        format_args!(
            "{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{rank},\"args\":{{\"name\":\"rank {rank}{suffix}\"}}}},\n"
        ),
    );
    put(
        out,
        format_args!(
            "{{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{rank},\"args\":{{\"sort_index\":{rank}}}}},\n"
        ),
    );
}

fn name_thread(rank: u32, thread: u32, name: Option<&str>, out: &mut String) {
    put(
        out,
        format_args!(
            "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{rank},\"tid\":{thread},\"args\":{{\"name\":"
        ),
    );
    quote(name.unwrap_or("thread"), out);
    out.push_str("}},\n");
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => put(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn put(out: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(args);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_quoted() {
        let mut out = String::new();
        quote("a \"b\" \\ c\nd\u{1b}\u{7f}é", &mut out);
        assert_eq!(out, "\"a \\\"b\\\" \\\\ c\\u000ad\\u001b\\u007fé\"");
    }

    #[test]
    fn event_is_one_line() {
        let (at, end) = (Timestamp(1_002_003), Timestamp(1_002_013));
        let args = [
            ("to", ArgValue::Number(1)),
            ("tag", ArgValue::Signed(-2)),
            ("device", ArgValue::Text("smdev")),
            ("context", ArgValue::Number(6)),
            NONE,
            NONE,
        ];
        let slice = TraceEvent {
            at,
            kind: EventKind::Slice { end },
            thread: 7,
            name: ["wait: ", "send"],
            category: "wait",
            args,
            text: None,
        };
        let line = |event: &TraceEvent| {
            let mut out = String::new();
            event.write(3, &Names::from([(6, "world.dup 1".into())]), &mut out);
            out
        };
        assert_eq!(
            line(&slice),
            "{\"name\":\"wait: send\",\"cat\":\"wait\",\"ph\":\"X\",\"pid\":3,\"tid\":7,\"ts\":1002.003,\"dur\":0.010,\
             \"args\":{\"to\":1,\"tag\":-2,\"device\":\"smdev\",\"context\":6,\
             \"communicator\":\"world.dup 1\"}},\n"
        );
        let flow = Flow { from: 0, to: 3, order: 9 };
        assert_eq!(
            line(&TraceEvent { kind: EventKind::Finish(flow), category: "message", ..slice }),
            "{\"name\":\"0 to 3\",\"id\":9,\"cat\":\"message\",\"ph\":\"f\",\"bp\":\"e\",\"pid\":3,\"tid\":7,\"ts\":1002.003},\n"
        );
    }
}
