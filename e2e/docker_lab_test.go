package e2e

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/docker"
)

// dockerLab is a Docker Engine that only the test uses, with one image.
type dockerLab struct {
	host  string // address of the engine
	image string // name of the image
	api   *client.Client
	cmd   *exec.Cmd
	dir   string
	args  []string
}

// dockerImage is the file name of the image's root file system, which is built from Debian
// packages and cached.
const dockerImage = "docker-image-2.tar"

// startDocker starts an engine with the given runtimes in addition to the default runtime. If
// this is impossible, it skips the test.
func startDocker(t testing.TB, runtimes ...string) *dockerLab {
	t.Helper()
	needRoot(t)
	for _, name := range []string{"dockerd", "containerd", "runc", "mmdebstrap"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s (make setup installs docker.io and mmdebstrap)", name)
		}
	}
	dir, err := os.MkdirTemp("", "brig-docker-") // short, because it contains Unix sockets
	if err != nil {
		t.Fatal(err)
	}
	onCleanup(t, func() { os.RemoveAll(dir) })
	l := &dockerLab{host: "unix://" + dir + "/s", image: "brig-test:1", dir: dir}
	l.args = []string{
		"--host", l.host, "--data-root", dir + "/data", "--exec-root", dir + "/exec", "--pidfile", dir + "/pid",
		"--config-file", dir + "/daemon.json", "--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false", "--live-restore",
	}
	// Prevent this engine from reading the host's configuration.
	config := "{}"
	if slices.Contains(runtimes, "runsc") {
		config = fmt.Sprintf(`{"runtimes": {"runsc": {"path": %q}}}`, bin(t, "test/runsc"))
	}
	if err := os.WriteFile(dir+"/daemon.json", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if l.api, err = client.New(client.WithHost(l.host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.api.Close() })
	onCleanup(t, func() { l.stop(t) })
	l.start(t)
	l.load(t)
	return l
}

// start starts the engine and waits until it responds.
func (l *dockerLab) start(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(l.dir+"/log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l.cmd = exec.Command("dockerd", l.args...)
	l.cmd.Stdout, l.cmd.Stderr = log, log
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = l.api.Ping(t.Context(), client.PingOptions{}); err == nil {
			return
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(l.dir + "/log")
			t.Fatalf("the engine does not answer: %v\n%s", err, b)
		}
	}
}

// stop ends the engine and all of its containers.
func (l *dockerLab) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
	defer cancel()
	list, err := l.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		t.Error(err)
	}
	for _, c := range list.Items {
		t.Errorf("a container is left over: %v, %s", c.Names, c.State)
		_, _ = l.api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	}
	l.end(syscall.SIGTERM)
	l.endShims()
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[1]; strings.HasPrefix(at, l.dir+"/") {
			_ = syscall.Unmount(at, syscall.MNT_DETACH)
		}
	}
}

// end sends a signal to the engine and to the containerd that it started, but not to containers.
func (l *dockerLab) end(s syscall.Signal) {
	var pid int
	if b, err := os.ReadFile(l.dir + "/exec/containerd/containerd.pid"); err == nil {
		_, _ = fmt.Sscan(string(b), &pid)
	}
	if l.cmd == nil {
		return
	}
	_ = l.cmd.Process.Signal(s)
	_ = l.cmd.Wait()
	for end := time.Now().Add(2 * promptTimeout); pid > 1 && syscall.Kill(pid, s) == nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
}

// endShims kills the shims of a killed engine, because they outlive it and no other process ends
// them.
func (l *dockerLab) endShims() {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		b, _ := os.ReadFile(name)
		if args := strings.Split(string(b), "\x00"); strings.Contains(args[0], "containerd-shim") && slices.Contains(args, l.dir+"/exec/containerd/containerd.sock") {
			var pid int
			if _, err := fmt.Sscanf(name, "/proc/%d/", &pid); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// load imports the image into the engine.
func (l *dockerLab) load(t testing.TB) {
	t.Helper()
	f, err := os.Open(dockerRootFS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := l.api.ImageImport(t.Context(), client.ImageImportSource{Source: f, SourceName: "-"}, l.image, client.ImageImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if _, err := io.Copy(io.Discard, got); err != nil {
		t.Fatal(err)
	}
}

// dockerRootFS builds the root file system unless it is cached.
func dockerRootFS(t testing.TB) string {
	t.Helper()
	dir := "/var/cache/brig-test"
	name := filepath.Join(dir, dockerImage)
	if _, err := os.Stat(name); err == nil {
		return name
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, fmt.Sprintf(".%d-%s", os.Getpid(), dockerImage))
	defer os.Remove(tmp)
	cmd := exec.CommandContext(t.Context(), "mmdebstrap", "--variant=minbase", "--include=python3,nodejs,hostname,procps",
		`--customize-hook=echo user:x:1000:1000::/home/user:/bin/bash >> "$1/etc/passwd"`, `--customize-hook=echo user:x:1000: >> "$1/etc/group"`, "bookworm", tmp)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the image: %v: %s", err, out)
	}
	if err := os.Rename(tmp, name); err != nil {
		t.Fatal(err)
	}
	return name
}

// provider opens a provider that uses the lab's engine.
func (l *dockerLab) provider(t testing.TB, dir string, change func(*docker.Options)) *docker.Provider {
	t.Helper()
	agent, err := os.ReadFile(bin(t, "brig-agent"))
	if err != nil {
		t.Fatal(err)
	}
	o := docker.Options{Host: l.host, DataDir: dir, Agent: agent, Pull: "never", Log: slog.New(slog.NewTextHandler(testLog{t}, nil))}
	if change != nil {
		change(&o)
	}
	p, err := docker.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// digest returns the engine's digest of the lab's image.
func (l *dockerLab) digest(t testing.TB, p *docker.Provider) string {
	t.Helper()
	img, err := p.Image(t.Context(), l.image)
	if err != nil {
		t.Fatal(err)
	}
	return img.Digest
}

// machine creates an instance that is destroyed when the test ends.
func (l *dockerLab) machine(t testing.TB, p *docker.Provider, change func(*brig.Spec)) (brig.ID, brig.Instance) {
	t.Helper()
	spec := brig.Spec{Name: "lab", Image: l.digest(t, p), Limits: brig.DefaultLimitRange().Default}
	if change != nil {
		change(&spec)
	}
	id := brig.ID(fmt.Sprintf("lab%d", time.Now().UnixNano()))
	in, err := p.Create(t.Context(), id, spec, time.Now().Add(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return id, in
}
