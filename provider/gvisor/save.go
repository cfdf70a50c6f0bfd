package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/failpoint"
)

// Files of a save. The first three are gVisor's: the state of its kernel, the
// index of the memory pages, and the pages.
const (
	stateFile    = "checkpoint.img"
	indexFile    = "pages_meta.img"
	pagesFile    = "pages.img"
	keptFile     = "kept.json" // the notes of kept processes
	manifestFile = "manifest.json"
)

// saveRequest is a provider's request to a shim to save a sandbox.
type saveRequest struct {
	Dir      string
	Stay     bool // keep the sandbox running afterwards
	Check    bool // only report the processes that prevent a save
	Manifest manifest
}

// save writes the memory and the files of the sandbox, or only the files, to a
// directory. If it fails, the sandbox continues. After a successful save without Stay,
// the sandbox is paused and the caller ends it.
func (s *shim) save(o *saveRequest) (holders []wire.Holder, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.machine.kernel.(*sentry)
	if !ok || s.AgentAt == "" {
		return nil, errors.New("the sandbox has a gofer")
	}
	filesOnly := o.Manifest.FilesOnly
	if s.Command != nil && !filesOnly {
		return []wire.Holder{{Name: "the main program", Reason: "its output goes to the log"}}, nil
	}
	if s.frozen { // the agent must be able to respond
		if err := s.machine.resume(); err != nil {
			return nil, err
		}
		s.frozen = false
	}
	s.machine.saving.Lock()
	defer s.machine.saving.Unlock()
	op := wire.ControlRelease
	if o.Check {
		op = wire.ControlCheck
	}
	if !filesOnly {
		if holders, err = s.machine.requestDescriptorClose(op); err != nil || len(holders) > 0 || o.Check {
			return holders, err
		}
	}
	failpoint.Hit("save.released")
	unfinished := o.Dir + newSuffix
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o700)); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := k.pause(); err != nil {
		return nil, err
	}
	if filesOnly {
		err = k.saveLayer(unfinished)
	} else {
		err = k.checkpoint(unfinished)
	}
	failpoint.Hit("save.written")
	stands := err == nil && !o.Stay
	if !stands {
		err = errors.Join(err, k.resume())
	}
	if err == nil {
		err = s.seal(unfinished, o)
	}
	if err != nil && stands {
		err = errors.Join(err, k.resume())
	}
	failpoint.Hit("save.sealed")
	return nil, err
}

// newSuffix is the suffix of the directory of an incomplete save.
const newSuffix = ".new"

// seal completes a save. It writes the manifest last, and renames the directory
// once all files are on disk.
func (s *shim) seal(dir string, o *saveRequest) error {
	l := layout{dir: dir}
	if o.Manifest.FilesOnly {
		if err := checkLayer(dir, o.Manifest.Limits); err != nil {
			return err
		}
	}
	o.Manifest.Size = 0
	for _, name := range savedFiles(o.Manifest.FilesOnly) {
		n, err := syncPath(l.path(name))
		if err != nil {
			return err
		}
		o.Manifest.Size += n
	}
	o.Manifest.At = time.Now().UTC()
	var err error
	if !o.Manifest.FilesOnly {
		err = l.writeJSON(keptFile, s.kept.notes(), true)
	}
	if err = errors.Join(err, l.writeJSON(manifestFile, o.Manifest, true)); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(o.Dir), os.Rename(dir, o.Dir)); err != nil {
		return fmt.Errorf("complete the save: %w", err)
	}
	_, err = syncPath(filepath.Dir(o.Dir))
	return err
}

// syncPath flushes a file or a directory to disk, and returns its allocated
// size.
func syncPath(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return 0, fmt.Errorf("write %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("measure %s: %w", path, err)
	}
	return st.Blocks * 512, nil
}

// releaseTimeout is the maximum response time of an agent before a save.
const releaseTimeout = 5 * time.Second

// requestDescriptorClose makes the agent close all descriptors of the host. If op is
// wire.ControlCheck, the agent only lists the processes that prevent a save.
// requestDescriptorClose skips late responses to earlier requests. The caller holds m.saving.
func (m *machine) requestDescriptorClose(op byte) ([]wire.Holder, error) {
	deadline := time.Now().Add(releaseTimeout)
	if err := m.control.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer func() { _ = m.control.SetDeadline(time.Time{}) }() // no other code sets a deadline
	m.lastRequest++
	if _, err := m.control.Write(wire.EncodeControlRequest(op, m.lastRequest)); err != nil {
		return nil, fmt.Errorf("prepare the agent: %w", err)
	}
	for b := make([]byte, wire.MaxRelease); ; {
		n, err := m.control.Read(b)
		if err != nil {
			return nil, fmt.Errorf("prepare the agent: %w", err)
		}
		var r wire.Release
		if err := json.Unmarshal(b[:n], &r); err != nil {
			return nil, fmt.Errorf("decode the agent's answer: %w", err)
		}
		if r.Number == m.lastRequest {
			return r.Holders[:min(len(r.Holders), wire.MaxHolders)], nil
		}
	}
}

// checkpoint writes the files of a save. The sentry must be paused, and remains
// paused.
func (s *sentry) checkpoint(dir string) error {
	files, err := openAll(dir, savedFiles(false), os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return err
	}
	defer closeFiles(files)
	return s.calls.callWith(files, call{"containerManager.Checkpoint", map[string]any{
		// The pages are uncompressed and in a separate file, so that a restore
		// can read them while the guest already runs. Resume keeps the sandbox
		// if the save fails.
		"metadata": map[string]string{"compression": "none"}, "have_pages_file": true, "Resume": true,
	}})
}

// restore starts the sentry's guest from the files of a save.
func (s *sentry) restore(dir string) error {
	files, err := openAll(dir, savedFiles(false), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer closeFiles(files)
	if err := s.calls.call(call{"containerManager.SetNetworkArgs", loopback()}); err != nil {
		return err
	}
	return s.calls.callWith(files, call{"containerManager.Restore", map[string]any{"HavePagesFile": true, "Background": true}})
}

func openAll(dir string, names []string, flags int) (files []*os.File, err error) {
	for _, name := range names {
		f, err := os.OpenFile(filepath.Join(dir, name), flags, 0o600)
		if err != nil {
			closeFiles(files)
			return nil, fmt.Errorf("open the save: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// maxCallAnswer is the maximum length of a sentry's response, in bytes. An
// error may contain stack traces.
const maxCallAnswer = 1 << 20

// callWith makes a call and donates files.
func (e *controlSocket) callWith(files []*os.File, one call) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: e.path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("reach the sentry: %w", err)
	}
	defer c.Close()
	b, err := json.Marshal(one)
	if err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	if _, _, err := c.WriteMsgUnix(b, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("call %s: %w", one.Method, err)
	}
	var response struct {
		Success bool   `json:"success"`
		Err     string `json:"err"`
	}
	if err := json.NewDecoder(io.LimitReader(c, maxCallAnswer)).Decode(&response); err != nil {
		return fmt.Errorf("call %s: %w", one.Method, err)
	}
	if !response.Success {
		line, _, _ := strings.Cut(response.Err, "\n")
		return fmt.Errorf("call %s: %s", one.Method, brig.Clip(line, 1000))
	}
	return nil
}

// notes returns the notes of the processes whose descriptors the agent holds.
// These processes are part of a save, while a process with descriptors of the
// host prevents one.
func (k *keptProcesses) notes() map[string][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string][]byte{}
	for id, v := range k.by {
		if len(v.fds) == 0 {
			out[id] = v.note
		}
	}
	return out
}

// restore reads the notes of a save.
func (k *keptProcesses) restore(dir string) error {
	notes := map[string][]byte{}
	if _, err := (layout{dir: dir}).readJSON(keptFile, &notes); err != nil {
		return err
	}
	for id, note := range notes {
		k.put(id, note, true, nil)
	}
	return nil
}
