//! What is logged, and where: lines on standard error, coloured on terminals only. A line that
//! cannot be written is lost, and nothing else is: the terminal may be closed, the disk full.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;

use crate::lastlines::Both;

/// What `--help` says of it where errors are logged if nobody asks for anything else.
pub(crate) const HELP_ERROR: &str = "How much to log [env: LOG_LEVEL] [default: error]";
/// The same where it is told what was done.
pub(crate) const HELP_INFO: &str = "How much to log [env: LOG_LEVEL] [default: info]";

/// How much is logged. `verbose` is another word for `debug`, as wireguard-go has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// Nothing.
    Silent,
    /// What went wrong.
    Error,
    /// And what is odd.
    Warn,
    /// And what was done.
    Info,
    /// And why.
    #[value(alias = "verbose")]
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// What `LOG_LEVEL` says. Other programs read that, too: a word that is none of ours is not
    /// meant for us, and keeps nobody from starting, as with wireguard-go.
    pub(crate) fn from_environment() -> Option<Self> {
        Self::from_str(&std::env::var("LOG_LEVEL").ok()?, true).ok()
    }

    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// In which form lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Form {
    /// Lines for people, or one JSON object a line: time, level, message and fields
    #[arg(long, value_enum, value_name = "FORM", default_value = "text", ignore_case = true)]
    #[arg(env = "WARREN_LOG_FORMAT")]
    log_format: Format,
}

/// The forms there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// One JSON object a line. Keys of fields that would hide ours get an underscore.
struct Json;

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let is_ours = matches!(name, "time" | "level" | "target");
        self.0.insert(if is_ours { format!("{name}_") } else { name.to_owned() }, value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let time = control::text::rfc3339(since.as_secs());
        let time = format!("{}.{:03}Z", time.trim_end_matches('Z'), since.subsec_millis());
        let mut line = Map::new();
        line.insert("time".to_owned(), time.into());
        let level = event.metadata().level().as_str().to_lowercase();
        line.insert("level".to_owned(), level.into());
        line.insert("target".to_owned(), event.metadata().target().into());
        line.append(&mut fields.0);
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// Begins logging, in lines for people.
pub(crate) fn start(level: Level) {
    start_as(level, Form { log_format: Format::Text });
}

/// Begins logging.
pub(crate) fn start_as(level: Level, form: Form) {
    let level = match level {
        Level::Silent => LevelFilter::OFF,
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    // The library of QUIC warns with addresses, which are for who debugs.
    let library = if level == LevelFilter::OFF || level >= LevelFilter::DEBUG {
        level
    } else {
        LevelFilter::ERROR
    };
    let filter = Targets::new()
        .with_default(level)
        .with_targets(["quinn", "quinn_proto", "quinn_udp"].map(|name| (name, library)));
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(colour)
        .with_writer(|| Both)
        // It would be told on standard error, by a call that panics where that cannot be written.
        .log_internal_errors(false);
    let begun = match form.log_format {
        Format::Text => tracing::subscriber::set_global_default(lines.finish().with(filter)),
        Format::Json => {
            let lines = lines.event_format(Json).finish();
            tracing::subscriber::set_global_default(lines.with(filter))
        }
    };
    begun.expect("logging begins once");
}

/// Has the process end when one of a node's threads panics: with the rest of them it would neither
/// work nor be started anew. A panic of the first thread ends it anyhow, and tidies up on its way.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tell(info);
        if std::thread::current().name() != Some("main") {
            let text = "warren: the program ends, for one of its threads panicked; report this";
            let _ = writeln!(io::stderr(), "{text}");
            #[expect(clippy::disallowed_methods, reason = "no loop is left that could tidy up")]
            std::process::abort();
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Set for the process that is to panic.
    const PANICS: &str = "WARREN_TEST_PANICS";

    #[test]
    fn rl_13_a_thread_that_panics_ends_the_process_with_a_line() {
        if std::env::var_os(PANICS).is_some() {
            end_on_panic();
            let _ = std::thread::spawn(|| panic!("on purpose")).join();
            // Not reached: a process that lives on would end with success.
            return;
        }
        let name = "log::tests::rl_13_a_thread_that_panics_ends_the_process_with_a_line";
        let output = Command::new(std::env::current_exe().expect("it runs"))
            .args([name, "--exact", "--nocapture"])
            .env(PANICS, "1")
            .output()
            .expect("it can be run again");
        assert_eq!(output.status.code(), None, "a signal ended it: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("on purpose") && said.contains("threads panicked"), "{said}");
    }
}
