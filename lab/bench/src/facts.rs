//! Where, when and with what a run was made.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Load average above which a machine counts as busy.
pub const BUSY_LOAD: f64 = 1.0;

/// What was typed, and which program is measured.
#[derive(Debug, Clone)]
pub struct Origin {
    /// The words, for the report.
    pub command: String,
    /// The file of `warren`.
    pub program: PathBuf,
}

/// What a reader must know to judge a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// When it began, UTC.
    pub date: String,
    /// The commit of the folder it was started in, with `+` where files differ from it.
    pub commit: String,
    /// A digest of the program that ran it, and that was measured as Warren; empty in runs of
    /// before this was noted.
    #[serde(default)]
    pub program: String,
    /// The words that started it.
    pub command: String,
    /// The processor's name.
    pub cpu: String,
    /// How many of them.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Load averages over 1, 5 and 15 minutes, before.
    pub load_before: [f64; 3],
    /// The version of iperf3.
    pub iperf3: String,
}

impl Facts {
    /// Asks this machine; what it does not know is `unknown`.
    #[must_use]
    pub fn gather(origin: &Origin) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let first = |text: String| text.lines().next().map(str::to_owned);
        Self {
            date: said(&["date", "-u", "+%Y-%m-%d %H:%M:%S UTC"]).unwrap_or_else(unknown),
            commit: commit().unwrap_or_else(unknown),
            program: fs::read(&origin.program).map_or_else(|_| unknown(), |bytes| digest(&bytes)),
            command: origin.command.clone(),
            cpu: cpu_name(&cpuinfo).unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: said(&["uname", "-srm"]).unwrap_or_else(unknown),
            load_before: load_averages_now(),
            iperf3: said(&["iperf3", "--version"]).and_then(first).unwrap_or_else(unknown),
        }
    }

    /// That what is measured `now` may stand beside what was measured then.
    ///
    /// # Errors
    /// Returns an error when the program, the processors, the kernel or iperf3 is another one.
    pub fn ensure_same(&self, now: &Self) -> Result<()> {
        let pairs = [
            ("the program", &self.program, &now.program),
            ("the processor", &self.cpu, &now.cpu),
            ("the number of processors", &self.cores.to_string(), &now.cores.to_string()),
            ("the kernel", &self.kernel, &now.kernel),
            ("iperf3", &self.iperf3, &now.iperf3),
        ];
        for (what, then, now) in pairs {
            ensure!(then == now, "{what} was '{then}' and is now '{now}': begin a new run");
        }
        Ok(())
    }

    /// Whether something else was using the machine.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.load_before[0] > BUSY_LOAD
    }
}

/// The load averages of this moment, zero where they are unknown.
#[must_use]
pub fn load_averages_now() -> [f64; 3] {
    let loadavg = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load_averages(&loadavg).unwrap_or([0.0; 3])
}

/// Builds are told apart by it, and nobody is to be deceived.
fn digest(bytes: &[u8]) -> String {
    format!("{:016x}", wire::fnv::sum(bytes.iter().copied()))
}

/// What a command prints, trimmed; none when it fails.
fn said(argv: &[&str]) -> Option<String> {
    let output = Command::new(argv[0]).args(&argv[1..]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn commit() -> Option<String> {
    let commit = said(&["git", "rev-parse", "--short=12", "HEAD"])?;
    let changed = said(&["git", "status", "--porcelain", "--untracked-files=no"]).is_some();
    Some(commit + if changed { "+" } else { "" })
}

/// The name that `/proc/cpuinfo` has; on aarch64 there is only a number of the part.
fn cpu_name(cpuinfo: &str) -> Option<String> {
    let value = |key: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(key))?;
        let (_, value) = line.split_once(':')?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    value("model name").or_else(|| Some(format!("CPU part {}", value("CPU part")?)))
}

fn load_averages(loadavg: &str) -> Option<[f64; 3]> {
    let mut numbers = loadavg.split_whitespace().map(|word| word.parse::<f64>().ok());
    let mut next = || numbers.next().flatten().filter(|load| load.is_finite() && *load >= 0.0);
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Origin {
        /// For tests that run nothing.
        pub(crate) fn of_nothing() -> Self {
            Self { command: "x".to_owned(), program: "/proc/self/exe".into() }
        }
    }

    impl Facts {
        /// Those of a run that nobody made.
        pub(crate) fn of_nothing() -> Self {
            let said = str::to_owned;
            Self {
                date: said("2026-01-01 00:00:00 UTC"),
                commit: said("abc"),
                program: said("0123456789abcdef"),
                command: said("warren-lab bench run"),
                cpu: said("A Processor"),
                cores: 2,
                kernel: said("Linux 6"),
                load_before: [0.0; 3],
                iperf3: said("iperf 3.12"),
            }
        }
    }

    #[test]
    fn load_averages_are_three_numbers_or_nothing() {
        assert_eq!(load_averages("1.05 1.68 3.49 2/150 12345\n"), Some([1.05, 1.68, 3.49]));
        for nonsense in ["", "1.0 2.0", "a b c", "1 nan 2", "-1 0 0"] {
            assert_eq!(load_averages(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_run_goes_on_with_the_same_program_on_the_same_machine() {
        assert_eq!(digest(b"foobar"), "85944171f73967e8", "in the form of runs of before");
        let then = Facts::gather(&Origin::of_nothing());
        let now = Facts { date: String::new(), load_before: [9.0; 3], ..then.clone() };
        assert!(then.ensure_same(&now).is_ok());
        let other = |change: fn(&mut Facts)| {
            let mut other = then.clone();
            change(&mut other);
            other
        };
        for (changed, named) in [
            (other(|facts| facts.program = digest(b"another")), "the program was"),
            (other(|facts| facts.cpu = "another".to_owned()), "the processor was"),
            (other(|facts| facts.cores += 1), "the number of processors was"),
            (other(|facts| facts.kernel = "another".to_owned()), "the kernel was"),
            (other(|facts| facts.iperf3 = "another".to_owned()), "iperf3 was"),
        ] {
            let error = then.ensure_same(&changed).unwrap_err().to_string();
            assert!(error.contains(named) && error.contains("begin a new run"), "{error}");
        }
        let earlier = other(|facts| facts.program.clear());
        assert!(earlier.ensure_same(&then).is_err(), "it was another one that did not note it");
    }

    #[test]
    fn the_processor_is_named_on_both_architectures() {
        let x86 = "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A Processor @ 2.50GHz\n";
        assert_eq!(cpu_name(x86).as_deref(), Some("A Processor @ 2.50GHz"));
        assert_eq!(cpu_name("CPU part\t: 0xd40\n").as_deref(), Some("CPU part 0xd40"));
        assert_eq!(cpu_name("model name\t:\n"), None);
        assert_eq!(cpu_name(""), None);
    }
}
