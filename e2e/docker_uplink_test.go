package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/engine"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/provider/docker"
)

// setuidProbe is the probe in the image of uplinkImage: root's, with its setuid
// bit.
const setuidProbe = "/usr/local/bin/setuid-probe"

// theirTrust is whom the image of uplinkImage trusts.
const theirTrust = "-----BEGIN CERTIFICATE-----\ndGhlaXJz\n-----END CERTIFICATE-----\n"

// uplinkImage is the lab's image, with a setuid program and certificates.
func (l *dockerLab) uplinkImage(t *testing.T) string {
	t.Helper()
	const name = "brig-test:uplink"
	made, err := l.api.ContainerCreate(t.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: l.image, Cmd: []string{"/bin/true"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := l.api.ContainerRemove(t.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Error(err)
		}
	}()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct {
		h    tar.Header
		data []byte
	}{
		{tar.Header{Name: setuidProbe[1:], Mode: 0o4755, Typeflag: tar.TypeReg}, probeFile(t).Data},
		{tar.Header{Name: "etc/ssl/certs/", Mode: 0o755, Typeflag: tar.TypeDir}, nil},
		{tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Typeflag: tar.TypeReg}, []byte(theirTrust)},
		{tar.Header{Name: "etc/ssl/certs/0a1b2c3d.0", Linkname: "ca-certificates.crt", Typeflag: tar.TypeSymlink}, nil},
	} {
		f.h.Size = int64(len(f.data))
		if err := w.WriteHeader(&f.h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.api.CopyToContainer(t.Context(), made.ID, client.CopyToContainerOptions{DestinationPath: "/", Content: &b}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.api.ContainerCommit(t.Context(), made.ID, client.ContainerCommitOptions{Reference: name}); err != nil {
		t.Fatal(err)
	}
	return name
}

// linkedContainer is a machine at the engine that may have an uplink, with the
// probe in it.
type linkedContainer struct {
	brig.Instance
	t  *testing.T
	id string // of the container
}

// ruled gives a machine rules.
func ruled(s *brig.Spec) { s.Egress = escapeRules }

func (l *dockerLab) linked(t *testing.T, image, runtime string, change func(*brig.Spec), disabled ...string) *linkedContainer {
	t.Helper()
	p := l.provider(t, t.TempDir(), func(o *docker.Options) { o.Runtime, o.Disabled = runtime, disabled })
	img, err := p.Image(t.Context(), image)
	if err != nil {
		t.Fatal(err)
	}
	id, in := l.machine(t, p, func(s *brig.Spec) { s.Image = img.Digest; change(s) })
	if err := in.Put(t.Context(), "/workspace", []brig.File{probeFile(t)}); err != nil {
		t.Fatal(err)
	}
	return &linkedContainer{in, t, "brig-" + string(id)}
}

// up gives it its uplink.
func (m *linkedContainer) up() brig.Uplink {
	m.t.Helper()
	up, err := m.Uplink(m.t.Context(), nil)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { up.Close() })
	return up
}

func (m *linkedContainer) facts(user, program string, args ...string) map[string]string {
	m.t.Helper()
	return parseFacts(m.t, shellIn(m.t, m, user, program+" "+strings.Join(args, " ")))
}

// init is the host's name in /proc for the container's init.
func (l *dockerLab) init(t *testing.T, m *linkedContainer) string {
	t.Helper()
	look, err := l.api.ContainerInspect(t.Context(), m.id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/", look.Container.State.Pid)
}

// statusAt reads what the host's kernel says of a process.
func statusAt(t *testing.T, proc string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(proc + "status")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out
}

// interfacesAt lists the interfaces of a process's network, as the host's kernel
// says.
func interfacesAt(t *testing.T, proc string) (out []string) {
	t.Helper()
	b, err := os.ReadFile(proc + "net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	slices.Sort(out)
	return out
}

// netAdmin is the bit of the capability to change a network.
const netAdmin = 1 << 12

func hasNetAdmin(t *testing.T, set string) bool {
	t.Helper()
	var v uint64
	if _, err := fmt.Sscanf(set, "%x", &v); err != nil {
		t.Fatalf("capabilities %q: %v", set, err)
	}
	return v&netAdmin != 0
}

// TestDockerUplinks: a container has what an uplink takes only if it is to have
// rules, and then none of its programs has it.
//
//suite:part docker full
func TestDockerUplinks(t *testing.T) {
	l := startDocker(t, "runsc")
	image := l.uplinkImage(t)
	t.Run("given", func(t *testing.T) { l.givesUplinks(t, image) })
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run("meddle-"+runtime, func(t *testing.T) { l.meddles(t, image, runtime) })
	}
	t.Run("meddle-control", func(t *testing.T) { l.meddleControl(t, image) })
	t.Run("trust", func(t *testing.T) { l.trusts(t, image) })
	t.Run("secret", l.brokers)
	t.Run("engine", func(t *testing.T) { l.losesEngine(t, image) })
}

// givesUplinks looks at containers from outside.
func (l *dockerLab) givesUplinks(t *testing.T, image string) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	plain, m := l.linked(t, image, "runc", func(*brig.Spec) {}), l.linked(t, image, "runc", ruled)
	if _, err := plain.Uplink(t.Context(), nil); brig.KindOf(err) != brig.FailedPrecondition {
		t.Errorf("an uplink of one without rules: %v", err)
	}
	for _, c := range []struct {
		m    *linkedContainer
		want bool
	}{{plain, false}, {m, true}} {
		s := statusAt(t, l.init(t, c.m))
		for _, set := range []string{"CapPrm", "CapEff"} {
			if has := hasNetAdmin(t, s[set]); has != c.want {
				t.Errorf("rules %t: its init's %s is %s", c.want, set, s[set])
			}
		}
		for _, set := range []string{"CapBnd", "CapInh", "CapAmb"} {
			if s[set] != strings.Repeat("0", 16) {
				t.Errorf("rules %t: its init's %s is %s", c.want, set, s[set])
			}
		}
		look, err := l.api.ContainerInspect(t.Context(), c.m.id, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h := look.Container.HostConfig
		if (len(h.Devices) > 0) != c.want || !h.NetworkMode.IsNone() || h.Privileged {
			t.Errorf("rules %t: devices %v, network %s, privileged %t", c.want, h.Devices, h.NetworkMode, h.Privileged)
		}
		if got := interfacesAt(t, l.init(t, c.m)); !slices.Equal(got, []string{"lo"}) {
			t.Errorf("rules %t: before an uplink there are %v", c.want, got)
		}
		areas, err := c.m.Enforced(t.Context())
		if e := areas[brig.AreaEgress]; err != nil || e.Level != brig.LevelBoundary || len(e.Gaps) > 0 {
			t.Errorf("rules %t: egress is %+v, %v", c.want, e, err)
		}
		for _, user := range []string{"user", "root"} {
			if out := shellIn(t, c.m, user, "ls /dev/net/tun 2>&1; find /dev -name '*tun*'"); !strings.Contains(out, "No such file") || strings.Count(out, "\n") != 1 {
				t.Errorf("rules %t: as %s: %q", c.want, user, out)
			}
		}
	}
	up := m.up()
	if got := interfacesAt(t, l.init(t, m)); !slices.Equal(got, []string{"eth0", "lo"}) {
		t.Errorf("with an uplink there are %v", got)
	}
	if after, err := net.Interfaces(); err != nil || len(after) != len(before) {
		t.Errorf("the host has %d interfaces, and had %d", len(after), len(before))
	}
	// Neither of its programs has what its init has, whoever it runs as.
	for _, user := range []string{"user", "root"} {
		mark := fmt.Sprintf("49%d", time.Now().UnixNano()%1e9)
		startIn(t, m, brig.Command{Argv: []string{"sleep", mark}, User: user})
		s := hostStatus(t, "sleep", mark)
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if s[set] != strings.Repeat("0", 16) {
				t.Errorf("%s of %s in the sandbox is %s", set, user, s[set])
			}
		}
		if s["NoNewPrivs"] != "1" || s["Seccomp"] != "2" {
			t.Errorf("%s: no-new-privileges %s, seccomp %s", user, s["NoNewPrivs"], s["Seccomp"])
		}
	}
	if err := up.Close(); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := interfacesAt(t, l.init(t, m))
		if slices.Equal(got, []string{"lo"}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("without the uplink there are %v", got)
		}
	}
}

// meddles tries to change the network of a container that has an uplink, to take
// its packets and to make some: as a user, as root, and by a setuid program.
func (l *dockerLab) meddles(t *testing.T, image, runtime string) {
	m := l.linked(t, image, runtime, ruled)
	m.up()
	for name, as := range map[string][2]string{"user": {"user", probe}, "root": {"root", probe}, "setuid": {"user", setuidProbe}} {
		f := m.facts(as[0], as[1], "link")
		tries := 0
		for _, what := range append([]string{"raw.udp", "raw.any", "raw6", "packet", "packet.dgram"}, meddling...) {
			want := "EPERM"
			if strings.HasPrefix(what, "tun.") {
				want = "not opened: ENOENT"
			}
			if f[what] != want {
				t.Errorf("%s, %s: %q", name, what, f[what])
			}
			attack.Tried("NET-12", "at docker with "+runtime+": "+what+" as "+name, f[what] != want)
			tries++
		}
		for what, verdict := range f {
			if strings.HasPrefix(what, "home.") && verdict != "EPERM" {
				t.Errorf("%s, from a network of its own, %s: %q", name, what, verdict)
			}
		}
		// With runc there is no network of its own to be had.
		if runtime == "runc" && f["elsewhere"] != "EPERM" {
			t.Errorf("%s made a network of its own: %v", name, f)
		}
		t.Logf("%s: %d tried", name, tries)
	}
	if runtime != "runc" {
		return
	}
	b, err := os.ReadFile(l.init(t, m) + "net/route")
	if err != nil || strings.Count(string(b), "eth0") != 2 {
		t.Errorf("it has changed: %s, %v", b, err)
	}
}

// meddleControl: with what the agent keeps to itself a program can do all of it.
func (l *dockerLab) meddleControl(t *testing.T, image string) {
	m := l.linked(t, image, "runc", ruled, "capabilities", "tun")
	m.up()
	f := m.facts("root", probe, "link")
	for _, name := range meddling {
		if f[name] != "allowed" {
			t.Errorf("%s: %q, and the capabilities are there", name, f[name])
		}
		attack.Seen("NET-12", "at docker: "+name, "no capabilities", f[name] == "allowed")
	}
	// So can who becomes root, where a program may.
	m = l.linked(t, image, "runc", ruled, "capabilities", "tun", "no-new-privileges")
	m.up()
	if f = m.facts("user", setuidProbe, "link"); f["address"] != "allowed" || f["unlink"] != "allowed" {
		t.Errorf("a setuid program cannot: %v", f)
	}
	// The device alone is of no use, and can be seen.
	m = l.linked(t, image, "runc", ruled, "tun")
	m.up()
	f = m.facts("root", probe, "link")
	if f["tun.attach"] != "EPERM" && f["tun.attach"] != "EBUSY" {
		t.Errorf("with the device alone: %q", f["tun.attach"])
	}
}

// trusts: what the image trusts is there, with rules and without, and stays when
// an authority comes to it.
func (l *dockerLab) trusts(t *testing.T, image string) {
	const look = "cat /etc/ssl/certs/0a1b2c3d.0; stat -c '%n %a %U' /etc/ssl/certs /etc/ssl/certs/*; cat /etc/resolv.conf | grep -c 198.18.0.1"
	out := map[string]string{}
	for _, runtime := range []string{"runc", "runsc"} {
		m := l.linked(t, image, runtime, ruled)
		out[runtime] = shellIn(t, m, "user", look)
		const authority = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"
		up, err := m.Uplink(t.Context(), []byte(authority))
		if err != nil {
			t.Fatal(err)
		}
		if got := shellIn(t, m, "user", "cat /etc/ssl/certs/0a1b2c3d.0"); got != theirTrust+authority {
			t.Errorf("%s: with an authority %q", runtime, got)
		}
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	}
	want := theirTrust + "/etc/ssl/certs 755 root\n/etc/ssl/certs/0a1b2c3d.0 777 root\n/etc/ssl/certs/ca-certificates.crt 644 root\n1\n"
	for _, runtime := range slices.Sorted(maps.Keys(out)) {
		if out[runtime] != want {
			t.Errorf("%s: %q, want %q", runtime, out[runtime], want)
		}
	}
	if got := shellIn(t, l.linked(t, image, "runc", func(*brig.Spec) {}), "user", "cat /etc/ssl/certs/0a1b2c3d.0"); got != theirTrust {
		t.Errorf("without rules %q", got)
	}
}

// dockerBeside are options of an engine with the provider beside its own.
func dockerBeside(t *testing.T) engine.Options {
	return engine.Options{
		Drivers: []brig.Driver{docker.Driver()},
		Site:    func(id string) brig.Site { return brig.Site{ID: id, Dir: t.TempDir(), Agent: bin(t, "brig-agent")} },
	}
}

// config sets the provider up with a runtime of the lab's engine.
func (l *dockerLab) config(runtime string) brig.ProviderConfig {
	return brig.ProviderConfig{
		ID: docker.Name + "@" + runtime, Config: fmt.Appendf(nil, `{"host": %q, "image": %q, "runtime": %q, "pull": "never"}`, l.host, l.image, runtime),
	}
}

// brokers: a secret is used by a sandbox that never sees it.
func (l *dockerLab) brokers(t *testing.T) {
	c := l.config("runc")
	e, ctx, box, _, _ := brokers(t, "docker", dockerBeside(t), brig.Spec{Placement: brig.Placement{Provider: c.ID, Only: true}}, c)
	if err := e.Remove(ctx, box.Spec.Name); err != nil {
		t.Error(err)
	}
}

// dialTill dials a port inside until somebody listens there.
func dialTill(t *testing.T, in brig.Instance, port int) (c net.Conn, err error) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err = in.Dial(t.Context(), port); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// chatter has a machine send as much as it can, by its uplink and otherwise.
func (l *dockerLab) chatter(t *testing.T, m brig.Instance) {
	t.Helper()
	startIn(t, m, brig.Command{Argv: []string{"python3", "-c", `
import socket, threading, time
def talk(c):
    try:
        while True: c.sendall(b"y" * 65536)
    except OSError: pass
def listen():
    ln = socket.create_server(("127.0.0.1", 7000))
    while True: threading.Thread(target=talk, args=(ln.accept()[0],), daemon=True).start()
threading.Thread(target=listen, daemon=True).start()
while True:
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        while True:
            s.sendto(b"x" * 60000, ("198.18.0.1", 9)); time.sleep(.001)
    except OSError: time.sleep(.01)
`}})
	for range 4 {
		c, err := dialTill(t, m, 7000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
}

// losesEngine: a machine whose engine is killed while it sends as much as it can
// has no uplink then, and can have another.
func (l *dockerLab) losesEngine(t *testing.T, image string) {
	m := l.linked(t, image, "runc", ruled)
	up := m.up()
	got := make(chan error, 1)
	go func() {
		b := make([]byte, brig.UplinkMTU)
		for {
			if _, err := up.Receive(b); err != nil {
				got <- err
				return
			}
		}
	}()
	l.chatter(t, m)
	time.Sleep(500 * time.Millisecond)
	l.end(9)
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Fatal("without an engine packets come")
	}
	time.Sleep(2 * time.Second) // all that there is room for on the way is full
	l.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again, err := m.Uplink(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if n, err := again.Receive(make([]byte, brig.UplinkMTU)); n == 0 || err != nil {
		t.Errorf("with the next one %d bytes, %v", n, err)
	}
}

// What a sandbox at a Docker Engine tries does not arrive either.
//
//suite:part docker full
func TestDockerEgress(t *testing.T) {
	needRoot(t)
	if os.Getenv("BRIG_LAB") == "" {
		dockerRootFS(t) // there is no network in the lab
	}
	if !inLab(t) {
		return
	}
	l := newEscapeLab(t)
	d := startDocker(t, "runsc")
	o := dockerBeside(t)
	o.Egress.Resolver = l.resolver()
	e, ctx := engineWith(t, o)
	for _, runtime := range []string{"runc", "runsc"} {
		c := d.config(runtime)
		if _, err := e.ConfigureProvider(ctx, c); err != nil {
			t.Fatal(err)
		}
		t.Run(runtime, func(t *testing.T) {
			l.escapes(t, e, ctx, brig.Spec{Placement: brig.Placement{Provider: c.ID, Only: true}})
		})
	}
}
