package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/store/sqlite"
)

// keyFileSpec is an API key that a server keeps in a file of its data folder. A
// user who can read the file can use the key.
type keyFileSpec struct {
	name, file, what string
	actor            brig.Actor
	kind             brig.KeyKind
	fresh            func() string
}

// keyFileSpecs returns the specs of all key files.
func keyFileSpecs() []keyFileSpec {
	return []keyFileSpec{
		{"admin", keyFile, "the admin key", brig.Actor{Name: "admin", Tenant: tenant, Role: brig.Operator}, brig.NativeKey,
			func() string { return "brig_" + strings.ToLower(rand.Text()+rand.Text()) }},
		{"e2b", e2bKeyFile, "the key for E2B's clients", brig.Actor{Name: "e2b", Tenant: tenant, Role: brig.Member}, brig.E2BKey,
			func() string { return "e2b_" + randomHex(20) }},
	}
}

// make creates the key unless its file exists, and registers it with the
// server.
func (k keyFileSpec) make(ctx context.Context, dir string, store brig.Store) error {
	secret, err := readSecretFile(filepath.Join(dir, k.file), k.what, k.fresh)
	if err != nil {
		return err
	}
	return putFileKey(ctx, store, secret, k.actor, k.kind)
}

// rotate replaces the key in the file and revokes the old one. After a crash
// during the rotation, the old key or both keys are valid.
func (k keyFileSpec) rotate(ctx context.Context, dir string, store brig.Store) error {
	file := filepath.Join(dir, k.file)
	old, err := os.ReadFile(file)
	if err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot read %s", file).WithHint("the first start of brig serve creates it").Because(err)
	}
	secret := k.fresh()
	if err := putFileKey(ctx, store, secret, k.actor, k.kind); err != nil {
		return err
	}
	if err := writeSecret(file, []byte(secret+"\n")); err != nil {
		return brig.Errorf(brig.NotInitialized, "cannot write %s", file).Because(err)
	}
	if err := store.DeleteKey(ctx, fileKeyID(strings.TrimSpace(string(old)))); err != nil {
		return err
	}
	return store.Append(ctx, brig.Event{
		At: time.Now().UTC(), Op: brig.RotatedOp, Actor: k.actor.Name, Tenant: k.actor.Tenant, Phase: brig.Observed,
		Detail: map[string]string{brig.DetailName: k.file},
	})
}

// fileKeyID returns the ID of a key from a file.
func fileKeyID(secret string) string {
	hash := sha256.Sum256([]byte(secret))
	return "k" + hex.EncodeToString(hash[:10])
}

// keyInFile returns a function that maps a key ID to the file in the data
// folder that contains the key, and to the key's name on the command line.
func keyInFile(dir string) func(id string) (file, name string) {
	return func(id string) (file, name string) {
		for _, k := range keyFileSpecs() {
			b, err := os.ReadFile(filepath.Join(dir, k.file))
			if err == nil && fileKeyID(strings.TrimSpace(string(b))) == id {
				return k.file, k.name
			}
		}
		return "", ""
	}
}

func (c keyCommands) rotate() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate (admin|e2b)",
		Short: "Replace a key file of the data folder, and revoke the old key",
		Long: `Replace admin.key or e2b.key in the data folder, and revoke the old key, which ends the
connections that use it. The command changes the folder itself, also while its server
runs. Clients with a copy of the old key need the new one.`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"admin", "e2b"},
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, k := range keyFileSpecs() {
				if k.name == args[0] {
					return c.rotateKey(cmd.Context(), k)
				}
			}
			return brig.InvalidField("key", "there is no key file for %q", brig.Clip(args[0], 40)).
				WithHint("use admin or e2b; for other keys use brig key revoke and brig key create")
		},
	}
}

func (c keyCommands) rotateKey(ctx context.Context, k keyFileSpec) error {
	dir, err := c.resolveDataFolder()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, dbFile)); err != nil {
		return brig.Errorf(brig.NotInitialized, "%s is not the data folder of a server", dir).WithHint("give the folder with --data-dir").Because(err)
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		return err
	}
	defer store.Close()
	if err := k.rotate(ctx, dir, store); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.stdout, "%s has a new key\n", filepath.Join(dir, k.file))
	return err
}
