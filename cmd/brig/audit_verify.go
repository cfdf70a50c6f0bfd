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
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/audit"
	"github.com/brig-run/brig/store/sqlite"
)

// headsFile is the file in which a server stores the signed heads of the audit
// log.
const headsFile = "audit-heads.jsonl"

const (
	headInterval = time.Minute
	maxHeads     = 1 << 20 // maximum bytes of headsFile
)

func (c auditCommands) verify() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "verify [FILE]",
		Short: "Verify an export or the data folder's audit log",
		Long: `Verify an export (- is standard input), or without FILE the audit log of every tenant in
the data folder, without a server. The command detects records that were changed, removed,
moved or inserted, prints the first of them, and exits with a code other than 0. An
attacker who can read audit.key could sign another log; --key, or heads that were kept
elsewhere (brig audit head), detect that as well.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pinned, err := base64.StdEncoding.DecodeString(key)
			if err != nil || len(pinned) != 0 && len(pinned) != ed25519.PublicKeySize {
				return brig.InvalidField("--key", "the value is not a key").WithHint("give the value of \"key\" in the output of brig audit head")
			}
			if len(args) == 1 {
				return c.verifyFile(args[0], pinned)
			}
			return c.verifyFolder(cmd.Context(), pinned)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "public `key` that must have signed the head, as brig audit head prints it")
	return cmd
}

func (c auditCommands) verifyFile(name string, key ed25519.PublicKey) error {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return unreadableError("", name, err)
		}
		defer f.Close()
		in = f
	}
	r, err := audit.VerifyExport(in, key)
	if err != nil {
		return newAuditLogError("", err)
	}
	return c.printReport(r)
}

// printReport prints the result of a successful verification.
func (c auditCommands) printReport(r *audit.Report) error {
	proof := "unsigned"
	if r.Signed {
		proof = "signed"
	}
	if r.Partial {
		proof += ", filtered: missing records are not detected"
	}
	return c.printJSONOrLine(r, fmt.Sprintf("ok: %d records of %q, %d to %d, %s", r.Lines, r.Tenant, r.First, r.Last, proof))
}

func (c auditCommands) verifyFolder(ctx context.Context, key ed25519.PublicKey) error {
	dir, err := c.resolveDataFolder()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, dbFile)); err != nil {
		return brig.Errorf(brig.NotInitialized, "there is no audit log in %s", dir).WithHint("give the data folder with --data-dir").Because(err)
	}
	store, err := sqlite.Open(ctx, filepath.Join(dir, dbFile))
	if err != nil {
		return err
	}
	defer store.Close()
	// Read the signed heads before the log, because the server may extend the
	// log concurrently.
	signed, err := readHeads(filepath.Join(dir, headsFile), key)
	if err != nil {
		return newAuditLogError("", err)
	}
	heads, err := store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	for _, h := range heads {
		r, err := verifyChain(ctx, store, h, signed[h.Tenant])
		if err != nil {
			return newAuditLogError(h.Tenant, err)
		}
		delete(signed, h.Tenant)
		if err := c.printReport(r); err != nil {
			return err
		}
	}
	for tenant := range signed {
		return newAuditLogError(tenant, &audit.InvalidRecord{Seq: 1, Reason: "it is missing, with all others"})
	}
	return nil
}

// verifyChain verifies a tenant's chain up to its head, and compares it with
// the heads that the server signed earlier.
func verifyChain(ctx context.Context, store brig.Store, head brig.AuditHead, signed []brig.AuditHead) (*audit.Report, error) {
	heads := map[int64]brig.AuditHead{}
	for _, h := range signed {
		heads[h.Seq] = h
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
			if h, ok := heads[l.Seq]; ok && h.Hash != l.Hash {
				return nil, &audit.InvalidRecord{Seq: l.Seq, Reason: "it, or one before it, was changed: another was signed"}
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
			return nil, &audit.InvalidRecord{Seq: head.Seq + 1, Reason: fmt.Sprintf("it is missing: record %d was signed", h.Seq)}
		}
	}
	return r, nil
}

// readHeads returns the signed heads in a file by tenant, and verifies their signatures.
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
			continue // a partial line: the server was killed during the write
		}
		h, err := form.Domain()
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

// writeHeadsPeriodically writes the signed heads of the audit log immediately, then at intervals,
// and once more when the returned function is called.
func writeHeadsPeriodically(ctx context.Context, dir string, store brig.Store, key ed25519.PrivateKey, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	seen := map[string]int64{}
	write := func() {
		if err := writeHeads(context.WithoutCancel(ctx), filepath.Join(dir, headsFile), store, key, seen); err != nil {
			log.Error("failed to write the heads of the audit log", "err", err)
		}
	}
	write() // record the heads that the previous server left
	go func() {
		defer close(done)
		tick := time.NewTicker(headInterval)
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

// writeHeads writes the heads that have changed. Earlier heads remain in the file until the new
// heads are on disk. Therefore, a full disk or a killed server loses at most the heads of the
// current write.
func writeHeads(ctx context.Context, file string, store brig.Store, key ed25519.PrivateKey, seen map[string]int64) error {
	heads, err := store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	info, none := os.Stat(file)
	anew := none == nil && info.Size() > maxHeads // the newest head of a tenant supersedes the older ones
	written := map[string]int64{}
	var b bytes.Buffer
	for _, h := range heads {
		if !anew && seen[h.Tenant] == h.Seq {
			continue
		}
		audit.Sign(&h, key)
		if err := json.NewEncoder(&b).Encode(audit.FromHead(h)); err != nil {
			return err
		}
		written[h.Tenant] = h.Seq
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
		maps.Copy(seen, written)
	}
	return err
}

// appendLines appends lines to a file. If the last line of the file is
// incomplete, the first new line starts on a new line.
func appendLines(file string, lines []byte) error {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
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

// replaceFile replaces the content of a file atomically.
func replaceFile(file string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*") // CreateTemp uses mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // err already describes the cause
	}
	return err
}
