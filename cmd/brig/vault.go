package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/seal"
)

// These files in the data folder contain the keys for secrets and for the audit log.
const (
	masterKeyFile  = "master.key"
	wrappedKeyFile = "master.key.wrapped" // wrapped by a KMS
	secretSeedFile = "secrets.seed"       // the seed of placeholders
	auditKeyFile   = "audit.key"          // signs the audit log's head
)

// masterKeyEnv is the environment variable that may contain the master key.
const masterKeyEnv = "BRIG_MASTER_KEY"

// openVault configures an engine's encryption of secrets and its signing of the
// audit log.
func (c *config) openVault(ctx context.Context, dir string, o *engine.Options) error {
	var from seal.Source = seal.File{Path: filepath.Join(dir, masterKeyFile)}
	if command := c.Secrets.KMSCommand; len(command) > 0 {
		from = seal.KMS{Path: filepath.Join(dir, wrappedKeyFile), Command: command}
	}
	if text := os.Getenv(masterKeyEnv); text != "" {
		_ = os.Unsetenv(masterKeyEnv) // child processes must not inherit it
		keys, err := seal.Parse(text)
		if err != nil {
			return brig.Errorf(brig.InvalidConfig, "%s: %v", masterKeyEnv, err).
				WithHint("for example the output of: openssl rand -base64 32")
		}
		from = keys
	}
	var err error
	if o.Keys, err = seal.Open(ctx, from); err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot read or create the master key of secrets").
			WithHint("check %s in the data folder, %s or secrets.kms_command", masterKeyFile, masterKeyEnv).Because(err)
	}
	seed, err := readSecretFile(filepath.Join(dir, secretSeedFile), "the seed of secrets' placeholders", func() string { return randomHex(32) })
	if err != nil {
		return err
	}
	o.Seed, o.Region = []byte(seed), c.Region
	o.AuditRetention = cmp.Or(time.Duration(c.Audit.Keep), defaultKeepAudit)
	o.AuditLines = cmp.Or(int64(c.Audit.Lines), defaultAuditLines)
	o.AuditKey, err = loadAuditKey(dir)
	return err
}

// These are the defaults for the retention of the audit log: the age, and the number of records per
// tenant.
const (
	defaultKeepAudit  = 90 * 24 * time.Hour
	defaultAuditLines = 1_000_000
)

// loadAuditKey reads or creates the key that signs the audit log's head.
func loadAuditKey(dir string) (ed25519.PrivateKey, error) {
	text, err := readSecretFile(filepath.Join(dir, auditKeyFile), "the key of the audit log", func() string { return randomHex(ed25519.SeedSize) })
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, brig.Errorf(brig.NotInitialized, "%s is not a key", auditKeyFile).
			WithHint("restore the file from a backup; a new key does not verify old signatures")
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// checkKeys logs the secrets and the paused sandboxes that cannot be decrypted with
// this server's keys.
func checkKeys(ctx context.Context, store brig.Store, keys *seal.Keyring, log *slog.Logger) error {
	all, err := store.AllSecrets(ctx)
	if err != nil {
		return err
	}
	variables, err := store.AllToolVariables(ctx)
	if err != nil {
		return err
	}
	lost := 0
	for _, s := range all {
		if !keys.HasKey(s.Key) {
			lost++
		}
	}
	for _, x := range variables {
		if !keys.HasKey(x.SealedBy) {
			lost++
		}
	}
	saves, lostSaves := 0, 0
	if err := store.All(ctx, func(r *brig.Record) error {
		if r.SaveKey != nil {
			saves++
			if !keys.HasKey(r.SaveKey.Key) {
				lostSaves++
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if lostSaves > 0 {
		log.Error("paused sandboxes were encrypted with a key that this server does not have", "sandboxes", lostSaves, "of", saves,
			"hint", "start it with the key that it had")
	}
	if lost > 0 {
		log.Error("secrets were encrypted with a key that this server does not have", "secrets", lost, "of", len(all)+len(variables),
			"hint", "start it with the key that it had")
	}
	return nil
}
