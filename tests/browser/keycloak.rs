//! Keycloak, in whose own pages somebody signs in: groups and roles, and how both end there.
//! `make test-keycloak` gets it (177 MB) and runs this.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};

use crate::scene::{Scene, free_port, said};
use crate::{PATIENCE, drive};

/// What an administrator of Keycloak in a test is called, and its password.
const ADMIN: &str = "admin";

/// Where `make test-keycloak` put it.
fn installed() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| root.join("target"), PathBuf::from);
    let place = target.join("tools/keycloak");
    assert!(place.join("bin/kc.sh").exists(), "run make test-keycloak, which gets Keycloak");
    place
}

struct Keycloak {
    url: String,
    child: Child,
}

impl Drop for Keycloak {
    fn drop(&mut self) {
        // Its script hands this on to the program; killed, it would leave that behind.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

impl Keycloak {
    /// Starts it with one realm. The first start builds it, a minute on a slow machine.
    fn start(scene: &Scene, place: &Path) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let realm = std::fs::read_to_string(root.join("tests/browser/realm.json")).unwrap();
        let back = format!("{}/sign-in/oidc/callback", scene.url());
        let imports = place.join("data/import");
        std::fs::create_dir_all(&imports).unwrap();
        std::fs::write(imports.join("uni.json"), realm.replace("REDIRECT", &back)).unwrap();
        let url = format!("https://127.0.0.1:{}", scene.ports[1]);
        let mut command = Command::new(place.join("bin/kc.sh"));
        command
            .args(["start-dev", "--db=dev-mem", "--import-realm"])
            .arg(format!("--http-port={}", free_port()))
            .arg(format!("--https-port={}", scene.ports[1]))
            .arg(format!("--https-certificate-file={}", scene.at("op.pem")))
            .arg(format!("--https-certificate-key-file={}", scene.at("op.key")))
            .arg(format!("--hostname={url}"))
            .env("KC_BOOTSTRAP_ADMIN_USERNAME", ADMIN)
            .env("KC_BOOTSTRAP_ADMIN_PASSWORD", ADMIN)
            .stdout(Stdio::null());
        let keycloak = Self { url, child: command.spawn().unwrap() };
        let begin = Instant::now();
        while !keycloak.is_there() {
            assert!(begin.elapsed() < PATIENCE * 10, "Keycloak does not answer");
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        keycloak
    }

    fn is_there(&self) -> bool {
        let place = format!("{}/realms/uni/.well-known/openid-configuration", self.url);
        let asked =
            Command::new("curl").args(["-skf", "-m", "5", "-o", "/dev/null", &place]).status();
        asked.is_ok_and(|status| status.success())
    }

    /// One call of its administration.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let form =
            format!("grant_type=password&client_id=admin-cli&username={ADMIN}&password={ADMIN}");
        let place = format!("{}/realms/master/protocol/openid-connect/token", self.url);
        let token = said(Command::new("curl").args(["-sSkf", "-m", "20", "-d", &form, &place]));
        let token: Value = serde_json::from_str(&token).unwrap();
        let bearer = format!("Authorization: Bearer {}", token["access_token"].as_str().unwrap());
        let mut curl = Command::new("curl");
        curl.args(["-sSkf", "-m", "20", "-X", method, "-H", &bearer]);
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let answer = said(curl.arg(format!("{}/admin/realms/uni{path}", self.url)));
        serde_json::from_str(&answer).unwrap_or_default()
    }

    fn user(&self) -> String {
        let found = self.call("GET", "/users?username=anna&exact=true", None);
        found[0]["id"].as_str().unwrap().to_owned()
    }

    fn leave_groups(&self) {
        let user = self.user();
        let groups = self.call("GET", &format!("/users/{user}/groups"), None);
        for group in groups.as_array().unwrap() {
            let group = group["id"].as_str().unwrap();
            self.call("DELETE", &format!("/users/{user}/groups/{group}"), None);
        }
    }

    fn disable(&self) {
        let user = self.user();
        self.call("PUT", &format!("/users/{user}"), Some(&json!({ "enabled": false })));
    }
}

#[test]
#[ignore = "needs Keycloak and Chromium, and minutes: make test-keycloak"]
fn co_08_co_09_keycloak_signs_people_in_and_what_it_takes_is_gone_within_minutes() {
    let place = installed();
    let roles = "[roles]\n\"/staff/Net Ops\" = \"operator\"\n";
    let mut scene = Scene::set("keycloak", PathBuf::new(), "/realms/uni", roles);
    // Keycloak is not there yet, and nobody minds.
    scene.start();
    let keycloak = Keycloak::start(&scene, &place);
    let url = scene.url();
    drive("keycloak", &[&url], |what, _| {
        match what {
            "user" => return scene.anna(),
            "leave-group" => keycloak.leave_groups(),
            "disable" => keycloak.disable(),
            other => panic!("the script asks for {other}"),
        }
        json!({})
    });
}
