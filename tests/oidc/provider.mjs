// A provider for tests/oidc.rs: one client, whoever says a name is that person, and groups that the
// test writes into a file. Words: PORT CERTIFICATE KEY GROUPS-FILE REDIRECT-URI ALGORITHM
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { Provider } from 'oidc-provider';

const [port, certificate, key, groups, redirect, algorithm] = process.argv.slice(2);
const kinds = {
  RS256: ['rsa', { modulusLength: 2048 }],
  ES256: ['ec', { namedCurve: 'P-256' }],
  EdDSA: ['ed25519', {}],
};
const issuer = `https://127.0.0.1:${port}`;
const pair = generateKeyPairSync(...kinds[algorithm]);
const told = () => JSON.parse(readFileSync(groups, 'utf8'));
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'warren',
    client_secret: 'a secret of a test',
    redirect_uris: [redirect],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    id_token_signed_response_alg: algorithm,
  }],
  jwks: { keys: [{ ...pair.privateKey.export({ format: 'jwk' }), kid: randomUUID(), use: 'sig' }] },
  scopes: ['openid', 'offline_access', 'profile', 'email'],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'], email: ['email', 'email_verified'] },
  conformIdTokenClaims: process.env.CONFORM === 'yes',
  pkce: { required: () => true },
  issueRefreshToken: async () => true,
  async findAccount(_, id) {
    const person = told()[id];
    if (!person) return undefined;
    return {
      accountId: id,
      claims: async () => ({
        sub: id, preferred_username: id, email: `${id}@uni.example`, email_verified: true, groups: person,
      }),
    };
  },
  cookies: { keys: ['a key of a test'] },
});
createServer({ cert: readFileSync(certificate), key: readFileSync(key) }, provider.callback())
  .listen(Number(port), '127.0.0.1', () => console.log('ready'));
