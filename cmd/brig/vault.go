package main

import (
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

// The files of a data folder that keep secrets, and prove the audit log.
const (
	masterKeyFile  = "master.key"
	wrappedKeyFile = "master.key.wrapped" // by a KMS
	secretSeedFile = "secrets.seed"       // of placeholders
	auditKeyFile   = "audit.key"          // signs the audit log's head
)

// masterKeyEnv is the variable that may have the key of secrets.
const masterKeyEnv = "BRIG_MASTER_KEY"

// vault gives an engine what it needs to keep secrets and to sign the audit
// log.
func (c *config) vault(ctx context.Context, dir string, o *engine.Options) error {
	var from seal.Source = seal.File{Path: filepath.Join(dir, masterKeyFile)}
	if command := c.Secrets.KMSCommand; len(command) > 0 {
		from = seal.KMS{Path: filepath.Join(dir, wrappedKeyFile), Command: command}
	}
	if text := os.Getenv(masterKeyEnv); text != "" {
		_ = os.Unsetenv(masterKeyEnv) // it is nothing for what we start
		keys, err := seal.Parse(text)
		if err != nil {
			return brig.Errorf(brig.InvalidConfig, "%s: %v", masterKeyEnv, err).
				WithHint("for example the output of: openssl rand -base64 32")
		}
		from = keys
	}
	var err error
	if o.Keys, err = seal.Open(ctx, from); err != nil {
		return brig.Errorf(brig.NotInitialized, "the key of secrets cannot be read or made").
			WithHint("check %s in the data folder, %s or secrets.kms_command", masterKeyFile, masterKeyEnv).Because(err)
	}
	seed, err := secretFile(filepath.Join(dir, secretSeedFile), "the seed of secrets' placeholders", func() string { return randomHex(32) })
	if err != nil {
		return err
	}
	o.Seed, o.Region, o.KeepAudit = []byte(seed), c.Region, time.Duration(c.Audit.Keep)
	o.AuditKey, err = auditKey(dir)
	return err
}

// auditKey reads or makes the key that signs the audit log's head.
func auditKey(dir string) (ed25519.PrivateKey, error) {
	text, err := secretFile(filepath.Join(dir, auditKeyFile), "the key of the audit log", func() string { return randomHex(ed25519.SeedSize) })
	if err != nil {
		return nil, err
	}
	seed, err := hex.DecodeString(text)
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, brig.Errorf(brig.NotInitialized, "%s is not a key", auditKeyFile).
			WithHint("put back the one that was there; a new one does not prove what was signed")
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// checkKeys says in the log which secrets this server's keys do not open.
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
		if !keys.Has(s.Key) {
			lost++
		}
	}
	for _, x := range variables {
		if !keys.Has(x.SealedBy) {
			lost++
		}
	}
	if lost > 0 {
		log.Error("secrets were encrypted with a key that this server does not have", "secrets", lost, "of", len(all)+len(variables),
			"hint", "start it with the key that it had")
	}
	return nil
}
