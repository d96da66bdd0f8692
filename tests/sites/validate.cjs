// Holds what a server and its clients said to each other against Microsoft's specifications, with
// Microsoft's own validator.
//
//     node validate.cjs SPECIFICATIONS EXCHANGES        NODE_PATH leads to `oav`
//
// Prints how many exchanges were held against them, and each thing that they do not allow. What
// has no specification there (resource groups, and operations that go on) is counted apart.

const fs = require("fs");
const { LiveValidator } = require("oav/dist/lib/liveValidation/liveValidator");

const [directory, file] = process.argv.slice(2);

async function main() {
  const validator = new LiveValidator({
    directory,
    swaggerPathsPattern: ["specification/**/*.json"],
    git: { shouldClone: false },
    loadValidatorInInitialize: false,
    loadValidatorInBackground: false,
  });
  await validator.initialize();
  let held = 0;
  let apart = 0;
  let wrong = 0;
  for (const line of fs.readFileSync(file, "utf8").trim().split("\n")) {
    const pair = JSON.parse(line);
    const path = pair.liveRequest.url.split("?")[0].toLowerCase();
    const parts = path.split("/");
    if (!path.includes("/providers/microsoft.") || path.includes("/locations/") || parts.length < 7) {
      apart += 1;
      continue;
    }
    if (pair.liveRequest.body === null) delete pair.liveRequest.body;
    if (pair.liveResponse.body === null) delete pair.liveResponse.body;
    const status = Number(pair.liveResponse.statusCode);
    const result = await validator.validateLiveRequestResponse(pair);
    const request = result.requestValidationResult;
    // What is refused has an error for an answer; its form is the same everywhere.
    const response = status < 400 ? result.responseValidationResult : { errors: [] };
    held += 1;
    for (const one of [request, response]) {
      const all = [...one.errors, ...(one.runtimeException ? [one.runtimeException] : [])];
      for (const error of all) {
        wrong += 1;
        console.log(`${pair.liveRequest.method} ${path}: ${error.code}: ${error.message} ${error.pathsInPayload ?? ""}`);
      }
    }
  }
  console.log(JSON.stringify({ held, apart, wrong }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
