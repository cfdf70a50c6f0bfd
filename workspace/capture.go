package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/failpoint"
	"github.com/brig-run/brig/internal/sparse"
)

// smallContent is the largest content, in bytes, that a capture holds in memory.
// maxConcurrentWrites is the maximum number of concurrent writes of a capture.
const (
	smallContent        = 1 << 20
	maxConcurrentWrites = 16
)

// Capture collects a tree for a new version.
type Capture struct {
	s            *Store
	tenant       string
	use          brig.WorkspaceUse
	sandbox      brig.ID
	quota        int64 // maximum bytes of all versions of the tenant; 0 means no limit
	release      func()
	base         *Snapshot // the version that the sandbox started from
	allowed      policy
	files        manifest
	skippedBase  map[string]bool // paths of base, or ".", that the provider skipped
	outside      manifest        // files captured outside /workspace; nil if not requested
	holds        map[string]bool
	skipped      []brig.WorkspaceSkip
	passed       int
	total        int64
	outsideBytes int64 // bytes of the files in outside
	memory       *memoryUse
	names        int64 // bytes of all names
	charge       int64 // bytes of memory that are not yet accounted for
	buf          []byte

	work  sync.WaitGroup
	slots chan struct{}
	mu    sync.Mutex // guards the fields below
	known map[string]bool
	wrote map[string]bool // objects that may have been written but that no version of this capture references
	err   error           // errors of failed writes
}

// Begin begins a new version of the workspace in a sandbox. All versions of the
// tenant together may use quota bytes; 0 means no limit. The caller must call
// Close.
func (s *Store) Begin(ctx context.Context, tenant string, sandbox brig.ID, use brig.WorkspaceUse, quota int64) (*Capture, error) {
	release, err := s.hold(ctx, tenant)
	if err != nil {
		return nil, err
	}
	c := &Capture{
		s: s, tenant: tenant, use: use, sandbox: sandbox, release: release, allowed: use.Prefixes, files: manifest{}, skippedBase: map[string]bool{},
		slots: make(chan struct{}, maxConcurrentWrites), known: map[string]bool{}, buf: make([]byte, smallContent+1), quota: quota, memory: s.memory.use(tenant), holds: map[string]bool{}, wrote: map[string]bool{},
	}
	if len(use.Capture) > 0 {
		c.outside = manifest{}
	}
	n, err := s.find(ctx, tenant, use.Name)
	if err == nil && n.ID != use.ID {
		err = brig.Errorf(brig.FailedPrecondition, "workspace %q is another one than the sandbox began with", use.Name).
			WithHint("copy the files out of the sandbox")
	}
	if err == nil {
		c.use.Version, err = s.findLastVersion(ctx, tenant, use, sandbox)
	}
	if err == nil {
		err = c.openBase(ctx)
	}
	if err != nil {
		c.memory.release()
		release()
		return nil, err
	}
	for _, e := range c.base.files {
		if e.digest != "" {
			c.known[e.digest] = true
		}
	}
	return c, nil
}

// openBase reads the base version, after it has reserved the estimated memory for
// a commit of similar files.
func (c *Capture) openBase(ctx context.Context) error {
	size, err := c.s.readVersionSize(ctx, c.tenant, c.use.Name, c.use.ID, c.use.Version)
	if err != nil {
		return err
	}
	err = c.memory.reserve(ctx, decodedMemory(size)+commitFactor*size+memoryStep)
	if err == nil {
		c.base, err = c.s.openVersion(ctx, c.memory, c.use.Name, c.use.ID, c.use.Version)
	}
	if err == nil && c.base.rec != nil && c.base.rec.Sandbox == c.sandbox && c.base.rec.Own != "" {
		c.base.files, err = c.s.readManifest(ctx, c.memory, c.base.rec.Own)
	}
	return unavailableError(err)
}

// addNames accounts for the names and the memory of a node.
func (c *Capture) addNames(ctx context.Context, n brig.Node) error {
	names := int64(len(n.Path) + len(n.Target))
	if c.names += names; c.names > brig.MaxWorkspaceNames {
		return namesError()
	}
	if c.charge += nameFactor*names + entryMemory; c.charge < memoryStep {
		return nil
	}
	err := c.memory.grow(ctx, c.charge)
	c.charge = 0
	return err
}

func namesError() error {
	return brig.Errorf(brig.FailedPrecondition, "the names of the workspace's files are too long: more than %s in all", brig.FormatBytes(brig.MaxWorkspaceNames)).
		WithHint("use shorter ones, or fewer files")
}

// findLastVersion returns the newest version that the sandbox has committed, or the
// version of its use. A server that dies right after a commit may not have
// stored the new version in the sandbox's record. Without findLastVersion, the sandbox's
// next commit would conflict with its own previous one.
func (s *Store) findLastVersion(ctx context.Context, tenant string, use brig.WorkspaceUse, sandbox brig.ID) (int, error) {
	ns, err := s.listNumbers(ctx, tenant, use.ID)
	if err != nil {
		return 0, unavailableError(err)
	}
	ns = slices.DeleteFunc(ns, func(n int) bool { return n <= use.Version })
	slices.Reverse(ns)
	for some := range slices.Chunk(ns, maxConcurrentWrites) {
		var work sync.WaitGroup
		mine, errs := make([]bool, len(some)), make([]error, len(some))
		for i, n := range some {
			work.Go(func() {
				r, err := s.readVersion(ctx, tenant, use.ID, n)
				mine[i] = err == nil && r.Sandbox == sandbox
				if !isDataLoss(err) { // skip a damaged version: it cannot be the sandbox's commit
					errs[i] = err
				}
			})
		}
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, unavailableError(err)
		}
		if i := slices.Index(mine, true); i >= 0 {
			return some[i], nil
		}
	}
	return use.Version, nil
}

// Close ends a capture. If the capture leaves unreferenced objects, the tenant
// needs a sweep, and the objects count against the quota until then. See
// NeedsSweep.
func (c *Capture) Close() {
	c.work.Wait()
	c.s.ledger(c.tenant).release(c.holds, c.wrote)
	c.memory.release()
	c.release()
}

// recordWrite records that an object is about to be written.
func (c *Capture) recordWrite(digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote[digest] = true
}

// keepSkipped keeps the files of the base version at paths that the provider
// skipped, because a skipped path was not deleted. The caller calls
// keepSkipped once, after all nodes, so that the cost does not depend on the
// number of skipped paths.
func (c *Capture) keepSkipped() {
	if len(c.skippedBase) == 0 {
		return
	}
	for p, e := range c.base.files {
		if c.files[p] != nil && !c.skippedBase[p] {
			continue
		}
		above := p
		for above != "." && !c.skippedBase[above] {
			above = path.Dir(above)
		}
		if c.skippedBase[above] {
			c.files[p] = e
		}
	}
}

// skip records a path that is not committed, and the reason.
func (c *Capture) skip(filePath, reason string) {
	if c.passed++; len(c.skipped) < brig.MaxWorkspacePaths {
		c.skipped = append(c.skipped, brig.WorkspaceSkip{Path: EscapePath(filePath), Reason: reason})
	}
}

func limitError(what string, limit any) error {
	return brig.Errorf(brig.FailedPrecondition, "the workspace has too much: %s", what).
		WithHint("a version has at most %v; remove some, or keep them outside /workspace", limit)
}

// Add adds a node from a sandbox.
func (c *Capture) Add(ctx context.Context, n brig.Node, r io.Reader) error {
	if n.Skipped != "" {
		// The base version has no files at or below any other path.
		if c.base.files[n.Path] != nil || n.Path == "." {
			c.skippedBase[n.Path] = true
		}
		c.skip(n.Path, n.Skipped)
		return nil
	}
	if len(c.files) >= brig.MaxWorkspaceFiles {
		return limitError("files", fmt.Sprint(brig.MaxWorkspaceFiles, " files"))
	}
	if !isLocalPath(n.Path) {
		return fmt.Errorf("a node of %.100q", n.Path) // the provider should have rejected the path
	}
	if err := c.addNames(ctx, n); err != nil {
		return err
	}
	e := &entry{Node: n}
	if n.Type == brig.RegularFile {
		if err := c.storeFile(ctx, e, r, c.allowed.canAllow(n.Path)); err != nil {
			return err
		}
		if c.total += e.Size; c.total > brig.MaxWorkspaceSize {
			return limitError("bytes", brig.FormatBytes(brig.MaxWorkspaceSize))
		}
	}
	c.files[n.Path] = e
	return nil
}

// storeFile reads a file. It stores the content if the content may become part of
// a version and is not in the store yet.
func (c *Capture) storeFile(ctx context.Context, e *entry, r io.Reader, storable bool) error {
	n, err := fill(r, c.buf)
	switch {
	case errors.Is(err, io.EOF):
		sum := sha256.Sum256(c.buf[:n])
		e.Size, e.digest = int64(n), hex.EncodeToString(sum[:])
		if n == 0 || !storable || !c.claimWrite(e) {
			return nil
		}
		if err := c.reserve(ctx, map[string]int64{e.digest: e.Size}); err != nil {
			return err
		}
		return c.storeSmallFile(ctx, e.digest, bytes.Clone(c.buf[:n]))
	case err != nil:
		return err
	}
	return c.storeLargeFile(ctx, e, io.MultiReader(bytes.NewReader(c.buf[:n]), r), storable)
}

// fill reads until the buffer is full or an error occurs. Unlike io.ReadFull, it
// does not treat the io.ErrUnexpectedEOF of a broken connection as the end of
// the file.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// claimWrite reports whether the caller must write a content. It returns true only
// once for each digest.
func (c *Capture) claimWrite(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[e.digest] {
		return false
	}
	c.known[e.digest] = true
	return true
}

// storeSmallFile stores a small content in the background, concurrently with further
// reads.
func (c *Capture) storeSmallFile(ctx context.Context, digest string, data []byte) error {
	c.recordWrite(digest)
	c.slots <- struct{}{}
	c.work.Go(func() {
		defer func() { <-c.slots }()
		err := c.s.o.Put(ctx, blobKey(c.tenant, digest), data)
		failpoint.Hit("workspace.kept")
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = errors.Join(c.err, err)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return unavailableError(c.err)
}

// storeLargeFile stores a large content, whose digest is not known until its end.
func (c *Capture) storeLargeFile(ctx context.Context, e *entry, r io.Reader, storable bool) error {
	sum := sha256.New()
	var to io.Writer = sum
	var stage Stage
	if storable {
		w := &stageWriter{c: c, ctx: ctx, declared: c.s.declared.use(c.tenant), staged: c.s.staged.use(c.tenant)}
		defer w.staged.release()
		defer w.declared.release()
		if err := w.declared.reserve(ctx, c.declaredSize(e)); err != nil {
			return unavailableError(err)
		}
		var err error
		if stage, err = c.s.o.Stage(ctx); err != nil {
			return unavailableError(err)
		}
		defer stage.Abort()
		w.w = stage
		to = io.MultiWriter(sum, w)
	}
	n, err := io.CopyBuffer(to, io.LimitReader(r, brig.MaxWorkspaceFile+1), make([]byte, smallContent))
	if err != nil {
		return err
	}
	if n > brig.MaxWorkspaceFile {
		return limitError("bytes in one file", brig.FormatBytes(brig.MaxWorkspaceFile))
	}
	e.Size, e.digest = n, hex.EncodeToString(sum.Sum(nil))
	if !storable || !c.claimWrite(e) {
		return nil
	}
	if err := c.reserve(ctx, map[string]int64{e.digest: e.Size}); err != nil {
		return err
	}
	c.recordWrite(e.digest)
	err = stage.Publish(ctx, blobKey(c.tenant, e.digest))
	failpoint.Hit("workspace.large")
	return unavailableError(err)
}

// declaredSize is the size to reserve for a file. The size that the sandbox
// declares is only a hint, and any excess is reserved later.
func (c *Capture) declaredSize(e *entry) int64 {
	size := min(e.Size, brig.MaxWorkspaceFile)
	if c.quota > 0 {
		size = min(size, c.quota)
	}
	return max(smallContent, size)
}

// stageWriter writes to a stage. It marks errors as errors of the store, in
// contrast to errors of the sandbox, and stops when the content exceeds the
// quota.
type stageWriter struct {
	c   *Capture
	ctx context.Context // the context of the call that writes
	w   io.Writer
	n   int64

	declared, staged *memoryUse // for the declared size and for the bytes in use
}

// Write implements io.Writer. It also accepts a content that is already in the
// store, because the digest is not known until the end.
func (s *stageWriter) Write(p []byte) (int, error) {
	if s.n += int64(len(p)); s.c.quota > 0 && s.n > s.c.quota {
		return 0, overQuotaError(s.c.quota)
	}
	err := s.declared.grow(s.ctx, int64(len(p)))
	if err == nil {
		err = s.staged.grow(s.ctx, sparse.Size(p)) // count only data: holes of a sparse file use no space
	}
	if err != nil {
		return 0, unavailableError(err)
	}
	n, err := s.w.Write(p)
	return n, unavailableError(err)
}
