package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/store/sqlite"
)

// headsFile is where a server writes down where the audit log stands.
const headsFile = "audit-heads.jsonl"

const (
	headEvery = time.Minute
	maxHeads  = 1 << 20 // bytes of headsFile
)

func (c *cli) auditVerify() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Check an export, or the data folder's log, and name the first bad record",
		Long: `Check an export (- is standard input), or without FILE the log in the data
folder, of every tenant. No server is asked. What was changed, taken out, moved
or put in is found, and the first such record is named; the exit code is not 0
then. Whoever can also write the key audit.key could make another log: with
--key, or with heads (brig audit head) that were kept elsewhere, that is found, too.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pinned, err := base64.StdEncoding.DecodeString(key)
			if err != nil || len(pinned) != 0 && len(pinned) != ed25519.PublicKeySize {
				return brig.InvalidField("--key", "it is not a key").WithHint("give \"key\" of: brig audit head")
			}
			if len(args) == 1 {
				return c.verifyFile(args[0], pinned)
			}
			return c.verifyFolder(cmd.Context(), pinned)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the `key` that must have signed the end, as brig audit head tells it")
	return cmd
}

func (c *cli) verifyFile(name string, key ed25519.PublicKey) error {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return brig.Errorf(brig.InvalidArgument, "%q cannot be read", name).Because(err)
		}
		defer f.Close()
		in = f
	}
	r, err := audit.VerifyExport(in, key)
	if err != nil {
		return badLog("", err)
	}
	return c.good(r)
}

// good says what was proven.
func (c *cli) good(r *audit.Report) error {
	proof := "unsigned"
	if r.Signed {
		proof = "signed"
	}
	if r.Partial {
		proof += ", a part: that nothing is missing is not proven"
	}
	return c.answer(r, fmt.Sprintf("ok: %d records of %q, %d to %d, %s", r.Lines, r.Tenant, r.First, r.Last, proof))
}

func (c *cli) verifyFolder(ctx context.Context, key ed25519.PublicKey) error {
	dir, err := c.dataFolder()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, dbFile)); err != nil {
		return brig.Errorf(brig.NotInitialized, "there is no audit log in %s", dir).WithHint("name the data folder with --data-dir").Because(err)
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		return err
	}
	defer store.Close()
	// What was signed first: the log goes on meanwhile.
	signed, err := readHeads(filepath.Join(dir, headsFile), key)
	if err != nil {
		return badLog("", err)
	}
	heads, err := store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	for _, h := range heads {
		r, err := verifyChain(ctx, store, h, signed[h.Tenant])
		if err != nil {
			return badLog(h.Tenant, err)
		}
		delete(signed, h.Tenant)
		if err := c.good(r); err != nil {
			return err
		}
	}
	for tenant := range signed {
		return badLog(tenant, &audit.Bad{Seq: 1, Why: "it is missing, with all others"})
	}
	return nil
}

// verifyChain checks a tenant's chain up to its head, and holds it to what was
// signed before.
func verifyChain(ctx context.Context, store brig.Store, head brig.AuditHead, signed []brig.AuditHead) (*audit.Report, error) {
	at := map[int64]brig.AuditHead{}
	for _, h := range signed {
		at[h.Seq] = h
	}
	var v audit.Verifier
	r := &audit.Report{Tenant: head.Tenant, Signed: len(signed) > 0}
	for q := (brig.AuditQuery{Limit: 1000}); q.After < head.Seq; {
		page, err := store.Audit(ctx, head.Tenant, q)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			if l.Seq > head.Seq {
				break
			}
			if r.First == 0 {
				r.First, v.Begins = l.Seq, l.Seq
			}
			if err := v.Add(l); err != nil {
				return nil, err
			}
			if h, ok := at[l.Seq]; ok && h.Hash != l.Hash {
				return nil, &audit.Bad{Seq: l.Seq, Why: "it, or one before it, was changed: another was signed"}
			}
		}
		q.After = page[len(page)-1].Seq
	}
	r.Lines, r.Last = v.Lines(), head.Seq
	if err := v.End(&head); err != nil {
		return nil, err
	}
	for _, h := range signed {
		if h.Seq > head.Seq {
			return nil, &audit.Bad{Seq: head.Seq + 1, Why: fmt.Sprintf("it is missing: record %d was signed", h.Seq)}
		}
	}
	return r, nil
}

// readHeads reads what a server signed, by tenant.
func readHeads(file string, key ed25519.PublicKey) (map[string][]brig.AuditHead, error) {
	out := map[string][]brig.AuditHead{}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	sc := bufio.NewScanner(bytes.NewReader(b))
	for sc.Scan() {
		var form audit.Head
		if json.Unmarshal(sc.Bytes(), &form) != nil {
			continue // a server was killed while it wrote
		}
		h, err := form.Noun()
		if err == nil {
			err = audit.CheckHead(h, key)
		}
		if err != nil {
			return nil, err
		}
		out[h.Tenant] = append(out[h.Tenant], h)
	}
	return out, sc.Err()
}

// keepHeads writes down where the log stands, now and then and at the end.
func keepHeads(ctx context.Context, dir string, store brig.Store, key ed25519.PrivateKey, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	seen := map[string]int64{}
	write := func() {
		if err := writeHeads(context.WithoutCancel(ctx), filepath.Join(dir, headsFile), store, key, seen); err != nil {
			log.Error("write down where the audit log stands", "err", err)
		}
	}
	write() // where an earlier server left it
	go func() {
		defer close(done)
		tick := time.NewTicker(headEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				write()
				return
			case <-tick.C:
				write()
			}
		}
	}()
	return func() { cancel(); <-done }
}

// writeHeads writes down the heads that have moved. What was written down
// before is proof until the new is on disk: a disk that is full, or a server
// that was killed, costs at most what it was writing.
func writeHeads(ctx context.Context, file string, store brig.Store, key ed25519.PrivateKey, seen map[string]int64) error {
	heads, err := store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	info, none := os.Stat(file)
	anew := none == nil && info.Size() > maxHeads // the newest of each tenant proves what the older ones do
	moved := map[string]int64{}
	var b bytes.Buffer
	for _, h := range heads {
		if !anew && seen[h.Tenant] == h.Seq {
			continue
		}
		audit.Sign(&h, key)
		if err := json.NewEncoder(&b).Encode(audit.FromHead(h)); err != nil {
			return err
		}
		moved[h.Tenant] = h.Seq
	}
	if b.Len() == 0 && none == nil {
		return nil
	}
	if anew {
		err = replaceFile(file, b.Bytes())
	} else {
		err = appendLines(file, b.Bytes())
	}
	if err == nil {
		maps.Copy(seen, moved)
	}
	return err
}

// appendLines adds lines to a file, of which the last may be half a line: that
// one must not spoil the first of these.
func appendLines(file string, lines []byte) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	var last [1]byte
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			lines = append([]byte{'\n'}, lines...)
		}
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Sync(), f.Close())
}

// replaceFile gives a file another content, or leaves it as it is.
func replaceFile(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is wrong is said already
	}
	return err
}
