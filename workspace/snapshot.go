package workspace

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
)

// Snapshot is one version of a workspace, or the empty version before the
// first.
type Snapshot struct {
	// ID is the workspace's ID, and Number the version's number.
	ID     string
	Number int
	rec    *record // nil for the empty version
	files  manifest
}

// Record returns the record of the version, or nil for the empty version.
func (s *Snapshot) Record() *brig.WorkspaceVersion {
	if s.rec == nil {
		return nil
	}
	return &s.rec.WorkspaceVersion
}

// Find returns a workspace's ID and the number of a version. Version 0 means
// the newest.
func (s *Store) Find(ctx context.Context, tenant, name string, version int) (id string, number int, err error) {
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return "", 0, err
	}
	if version == 0 {
		head, err := s.readHead(ctx, tenant, n.ID)
		if err != nil || head == nil {
			return n.ID, 0, err
		}
		return n.ID, head.Number, nil
	}
	if _, err := s.readVersion(ctx, tenant, n.ID, version); err != nil {
		return "", 0, noVersionError(name, version, err)
	}
	return n.ID, version, nil
}

func noVersionError(name string, version int, err error) error {
	if errors.Is(err, ErrMissing) {
		return brig.Errorf(brig.NotFound, "workspace %q has no version %d", name, version).WithHint("list its versions to see what exists")
	}
	if isDataLoss(err) {
		return damagedError(name, version, err)
	}
	return unavailableError(err)
}

// openVersion reads a version into memory that u holds. Version 0 is empty.
func (s *Store) openVersion(ctx context.Context, u *memoryUse, name, id string, number int) (*Snapshot, error) {
	snap := &Snapshot{ID: id, Number: number, files: manifest{}}
	if number == 0 {
		return snap, nil
	}
	var err error
	if snap.rec, err = s.readVersion(ctx, u.tenant, id, number); err != nil {
		return nil, noVersionError(name, number, err)
	}
	snap.files, err = s.readManifest(ctx, u, snap.rec.Manifest)
	if err == nil && snap.files.digest() != snap.rec.Digest {
		err = fmt.Errorf("%w: version %d of %s has another's manifest", errBroken, number, id)
	}
	if err != nil {
		return nil, damagedError(name, number, err)
	}
	return snap, nil
}

// damagedError returns the error for a version that could not be read. If the
// version was not modified, but the store does not respond, it returns an
// Unavailable error.
func damagedError(name string, number int, err error) error {
	if !isDataLoss(err) {
		return unavailableError(err)
	}
	return brig.Errorf(brig.FailedPrecondition, "version %d of workspace %q is damaged: a stored object does not match its digest", number, name).
		WithHint("restore another version, and find out who wrote to the store").Because(err)
}

// readManifest reads a manifest into memory that u holds.
func (s *Store) readManifest(ctx context.Context, u *memoryUse, digest string) (manifest, error) {
	size, err := s.readManifestSize(ctx, u.tenant, digest)
	if err == nil {
		err = u.grow(ctx, decodedMemory(size))
	}
	if err != nil {
		return nil, err
	}
	m := manifest{}
	if _, err = s.scan(ctx, u.tenant, digest, m.add); err != nil {
		return nil, err
	}
	if err = m.check(); err != nil {
		err = fmt.Errorf("%w: %w", errBroken, err)
	}
	return m, err
}

// readManifestSize returns the stored size of a manifest.
func (s *Store) readManifestSize(ctx context.Context, tenant, digest string) (int64, error) {
	size, err := s.o.Size(ctx, blobKey(tenant, digest))
	if err == nil && size > maxManifest {
		err = fmt.Errorf("%w: manifest %s has %d bytes", errBroken, digest, size)
	}
	return size, err
}

// readVersionSize returns the stored size of a version's manifest: 0 for version 0.
// Before callers open a version, they reserve the memory for all versions that
// they need. Otherwise two callers that each hold one version could wait for each
// other.
func (s *Store) readVersionSize(ctx context.Context, tenant, name, id string, number int) (int64, error) {
	if number == 0 {
		return 0, nil
	}
	r, err := s.readVersion(ctx, tenant, id, number)
	if err != nil {
		return 0, noVersionError(name, number, err)
	}
	size, err := s.readManifestSize(ctx, tenant, r.Manifest)
	if err != nil {
		return 0, damagedError(name, number, err)
	}
	return size, nil
}

// verify scans a version without keeping it in memory. It passes the entries to
// f in order.
func (s *Store) verify(ctx context.Context, tenant, name, id string, r *record, f func(*entry)) error {
	sum := newTreeDigest()
	_, err := s.scan(ctx, tenant, r.Manifest, func(e *entry) error {
		sum.add(e)
		f(e)
		return nil
	})
	if err == nil && sum.sum() != r.Digest {
		err = fmt.Errorf("%w: version %d of %s has another's manifest", errBroken, r.Number, id)
	}
	if err != nil {
		return damagedError(name, r.Number, err)
	}
	return nil
}

// Unpacking is a version that is about to be unpacked. Its objects are held, and
// the memory for its manifest is reserved.
type Unpacking struct {
	s       *Store
	use     brig.WorkspaceUse
	release func()
	memory  *memoryUse
}

// BeginUnpack waits for a sweep in progress and for memory, so that Unpack
// does not have to wait. The caller must call Close.
func (s *Store) BeginUnpack(ctx context.Context, tenant string, use brig.WorkspaceUse) (*Unpacking, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	u := &Unpacking{s: s, use: use, release: release, memory: s.memory.use(tenant)}
	if err := u.reserve(ctx, tenant); err != nil {
		u.Close()
		return nil, err
	}
	return u, nil
}

func (u *Unpacking) reserve(ctx context.Context, tenant string) error {
	size, err := u.s.readVersionSize(ctx, tenant, u.use.Name, u.use.ID, u.use.Version)
	if err != nil {
		return err
	}
	return unavailableError(u.memory.reserve(ctx, decodedMemory(size)))
}

// Close releases the version's objects and memory.
func (u *Unpacking) Close() {
	u.memory.release()
	u.release()
}

// Unpack passes all nodes of the version to put, parents first. The readers
// verify the contents: put receives an error at the end of a modified content.
func (u *Unpacking) Unpack(ctx context.Context, put func(brig.Node, io.Reader) error) error {
	s, tenant, use := u.s, u.memory.tenant, u.use
	snap, err := s.openVersion(ctx, u.memory, use.Name, use.ID, use.Version)
	if err != nil {
		return err
	}
	for _, p := range snap.files.paths() {
		e := snap.files[p]
		if e.Type != brig.RegularFile {
			err = put(e.Node, nil)
		} else {
			err = s.unpackFile(ctx, tenant, use, e, put)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) unpackFile(ctx context.Context, tenant string, use brig.WorkspaceUse, e *entry, put func(brig.Node, io.Reader) error) error {
	if e.Size == 0 {
		return put(e.Node, strings.NewReader(""))
	}
	r, err := s.o.Get(ctx, blobKey(tenant, e.digest))
	if errors.Is(err, ErrMissing) {
		return damagedError(use.Name, use.Version, err)
	}
	if err != nil {
		return unavailableError(err)
	}
	defer r.Close()
	c := &verifyingReader{r: r, remaining: e.Size, want: e.digest, hash: sha256.New()}
	err = put(e.Node, c)
	if c.err != nil {
		return damagedError(use.Name, use.Version, fmt.Errorf("content of %.200q: %w", e.Path, c.err))
	}
	return err
}

// verifyingReader is a reader that returns an error at the end of a content
// that was modified.
type verifyingReader struct {
	r         io.Reader
	remaining int64
	want      string
	hash      hash.Hash
	err       error
}

// Read implements io.Reader.
func (c *verifyingReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.r.Read(p)
	c.hash.Write(p[:n])
	switch c.remaining -= int64(n); {
	case c.remaining < 0:
		c.err = fmt.Errorf("%w: it is too long", errBroken)
	case errors.Is(err, io.EOF) && c.remaining > 0:
		c.err = fmt.Errorf("%w: it is too short", errBroken)
	case errors.Is(err, io.EOF) && hex.EncodeToString(c.hash.Sum(nil)) != c.want:
		c.err = fmt.Errorf("%w: it has another digest", errBroken)
	case err != nil && !errors.Is(err, io.EOF):
		c.err = err
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, err
}

// Diff lists the paths at which two versions differ.
func (s *Store) Diff(ctx context.Context, tenant, name string, from, to int) ([]brig.WorkspaceChange, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	needed := int64(0)
	for _, number := range []int{from, to} {
		size, err := s.readVersionSize(ctx, tenant, name, n.ID, number)
		if err != nil {
			return nil, err
		}
		needed += decodedMemory(size)
	}
	u := s.memory.use(tenant)
	defer u.release()
	if err := u.reserve(ctx, needed); err != nil {
		return nil, unavailableError(err)
	}
	a, err := s.openVersion(ctx, u, name, n.ID, from)
	if err != nil {
		return nil, err
	}
	b, err := s.openVersion(ctx, u, name, n.ID, to)
	if err != nil {
		return nil, err
	}
	list := diff(a.files, b.files)
	return toChanges(list, len(list)), nil
}

// Restore creates a new version with the content of an old one. If the newest
// version already has the same content, Restore returns the newest version.
// All versions of the tenant together may use quota bytes; 0 means no limit.
func (s *Store) Restore(ctx context.Context, tenant, actor, name string, version int, quota int64) (*brig.WorkspaceVersion, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer release()
	n, err := s.find(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	old, err := s.readVersion(ctx, tenant, n.ID, version)
	if err != nil {
		return nil, noVersionError(name, version, err)
	}
	if err := s.verify(ctx, tenant, name, n.ID, old, func(*entry) {}); err != nil {
		return nil, err
	}
	r := newRecord()
	names, holds := map[string]int64{versionName(r): versionCharge}, map[string]bool{}
	defer func() { s.ledger(tenant).release(holds, nil) }()
	for {
		head, err := s.readHead(ctx, tenant, n.ID)
		if err != nil {
			return nil, err
		}
		if head.Digest == old.Digest && head.Outside == "" {
			return &head.WorkspaceVersion, nil
		}
		if err := s.reserve(ctx, tenant, quota, names, holds); err != nil {
			return nil, err
		}
		mark := r.Mark
		*r = *old
		r.Mark, r.Own, r.Outside, r.Captured, r.CapturedSize = mark, "", "", 0, 0
		r.Number, r.Base, r.Restored = head.Number+1, head.Number, version
		r.Created, r.Actor, r.Sandbox = s.now().UTC(), actor, ""
		switch err := s.append(ctx, tenant, n.ID, r); {
		case errors.Is(err, ErrTaken):
			continue
		case err != nil:
			s.ledger(tenant).forget() // the record may exist despite the error
			return nil, unavailableError(err)
		}
		s.ledger(tenant).settle(names)
		s.trim(ctx, tenant, n.ID, r.Number)
		return &r.WorkspaceVersion, nil
	}
}

// MaxVersions is the number of versions of a workspace that are kept.
const MaxVersions = 10_000

// maxVersions is MaxVersions, except in tests. The oldest versions are removed in
// batches of trimBatch, so that few commits have to remove any.
var (
	maxVersions = MaxVersions
	trimBatch   = 500
)

// trim removes the oldest versions of a workspace beyond MaxVersions, after every
// trimBatch-th version. It removes at most two batches, even if an earlier version
// of Brig has left more. A later trim retries failed removals. The contents of
// removed versions remain until the next sweep, because a sweep reads all versions
// and is too expensive after each trim.
func (s *Store) trim(ctx context.Context, tenant, id string, newest int) {
	if newest <= maxVersions || newest%trimBatch != 0 {
		return
	}
	numbers, err := s.listNumbers(ctx, tenant, id)
	if err != nil || len(numbers) <= maxVersions {
		return
	}
	for _, n := range numbers[:min(len(numbers)-maxVersions, 2*trimBatch)] {
		if s.o.Delete(ctx, versionKey(tenant, id, n)) != nil {
			break
		}
	}
	s.ledger(tenant).markTrimmed()
}

// newRecord returns a record for a new version.
func newRecord() *record { return &record{Mark: rand.Text()} }

// append writes the record of a version, unless a record with its number
// exists.
func (s *Store) append(ctx context.Context, tenant, id string, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = s.create(ctx, versionKey(tenant, id, r.Number), b)
	failpoint.Hit("workspace.committed")
	return err
}
