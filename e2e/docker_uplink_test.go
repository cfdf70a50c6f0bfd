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

// setuidProbe is the path of the setuid-root probe in the image of uplinkImage.
const setuidProbe = "/usr/local/bin/setuid-probe"

// imageTrust is the CA certificate that the image of uplinkImage trusts.
const imageTrust = "-----BEGIN CERTIFICATE-----\ndGhlaXJz\n-----END CERTIFICATE-----\n"

// uplinkImage extends the lab's image with a setuid program and certificates, and returns the
// name of the new image.
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
		{tar.Header{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Typeflag: tar.TypeReg}, []byte(imageTrust)},
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

// linkedContainer is an instance on the engine, with the probe and possibly
// with an uplink.
type linkedContainer struct {
	brig.Instance
	t  *testing.T
	id string // ID of the container
}

// withEgressRules adds egress rules to a spec, so that the instance requires an uplink.
func withEgressRules(s *brig.Spec) { s.Egress = escapeRules }

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

// up opens the instance's uplink.
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

// init returns the /proc directory of the container's init process on the host.
func (l *dockerLab) init(t *testing.T, m *linkedContainer) string {
	t.Helper()
	look, err := l.api.ContainerInspect(t.Context(), m.id, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/", look.Container.State.Pid)
}

// statusAt reads a process's status from the host's /proc.
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

// interfacesAt lists the interfaces in the network namespace of a process, as reported by the
// host's kernel.
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

// netAdmin is the capability bit of CAP_NET_ADMIN.
const netAdmin = 1 << 12

func hasNetAdmin(t *testing.T, set string) bool {
	t.Helper()
	var v uint64
	if _, err := fmt.Sscanf(set, "%x", &v); err != nil {
		t.Fatalf("capabilities %q: %v", set, err)
	}
	return v&netAdmin != 0
}

// TestDockerUplinks verifies that a container has the capability and the device
// for an uplink only if egress rules may be set, and that its programs never
// have them.
//
//suite:part docker full
func TestDockerUplinks(t *testing.T) {
	l := startDocker(t, "runsc")
	image := l.uplinkImage(t)
	t.Run("given", func(t *testing.T) { l.checkUplinkPrivileges(t, image) })
	for _, runtime := range []string{"runc", "runsc"} {
		t.Run("meddle-"+runtime, func(t *testing.T) { l.checkNetworkIsolation(t, image, runtime) })
	}
	t.Run("meddle-control", func(t *testing.T) { l.checkNetworkControl(t, image) })
	t.Run("trust", func(t *testing.T) { l.checkCertificates(t, image) })
	t.Run("secret", l.checkBrokeredSecret)
	t.Run("engine", func(t *testing.T) { l.checkEngineLoss(t, image) })
}

// checkUplinkPrivileges inspects the privileges of containers from the host.
func (l *dockerLab) checkUplinkPrivileges(t *testing.T, image string) {
	before, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	plain, m := l.linked(t, image, "runc", func(*brig.Spec) {}), l.linked(t, image, "runc", withEgressRules)
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
	// No program in the container has the capabilities of its init process, regardless of the
	// user.
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
	for end := time.Now().Add(promptTimeout); ; time.Sleep(20 * time.Millisecond) {
		got := interfacesAt(t, l.init(t, m))
		if slices.Equal(got, []string{"lo"}) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("without the uplink there are %v", got)
		}
	}
}

// checkNetworkIsolation tries to change the network of a container with an uplink, to intercept
// its packets and to forge packets. It tries this as a regular user, as root and with a setuid
// program.
func (l *dockerLab) checkNetworkIsolation(t *testing.T, image, runtime string) {
	m := l.linked(t, image, runtime, withEgressRules)
	m.up()
	for name, as := range map[string][2]string{"user": {"user", probe}, "root": {"root", probe}, "setuid": {"user", setuidProbe}} {
		f := m.facts(as[0], as[1], "link")
		tries := 0
		for _, what := range append([]string{"raw.udp", "raw.any", "raw6", "packet", "packet.dgram"}, networkActions...) {
			want := "EPERM"
			if strings.HasPrefix(what, "tun.") {
				want = "not opened: ENOENT"
			}
			if f[what] != want {
				t.Errorf("%s, %s: %q", name, what, f[what])
			}
			attack.RecordCase("NET-12", "at docker with "+runtime+": "+what+" as "+name, f[what] != want)
			tries++
		}
		for what, verdict := range f {
			if strings.HasPrefix(what, "home.") && verdict != "EPERM" {
				t.Errorf("%s, from a network of its own, %s: %q", name, what, verdict)
			}
		}
		// With runc, a program cannot create a network namespace.
		if runtime == "runc" && f["elsewhere"] != "EPERM" {
			t.Errorf("%s created its own network namespace: %v", name, f)
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

// checkNetworkControl is the control of checkNetworkIsolation: the same attempts succeed with the
// agent's privileges.
func (l *dockerLab) checkNetworkControl(t *testing.T, image string) {
	m := l.linked(t, image, "runc", withEgressRules, "capabilities", "tun")
	m.up()
	f := m.facts("root", probe, "link")
	for _, name := range networkActions {
		if f[name] != "allowed" {
			t.Errorf("%s: %q, and the capabilities are there", name, f[name])
		}
		attack.RecordMutant("NET-12", "at docker: "+name, "no capabilities", f[name] == "allowed")
	}
	// The attempts of a setuid program succeed, too, if it may gain privileges.
	m = l.linked(t, image, "runc", withEgressRules, "capabilities", "tun", "no-new-privileges")
	m.up()
	if f = m.facts("user", setuidProbe, "link"); f["address"] != "allowed" || f["unlink"] != "allowed" {
		t.Errorf("a setuid program cannot: %v", f)
	}
	// The device alone is not sufficient for an attack, but the probe detects it.
	m = l.linked(t, image, "runc", withEgressRules, "tun")
	m.up()
	f = m.facts("root", probe, "link")
	if f["tun.attach"] != "EPERM" && f["tun.attach"] != "EBUSY" {
		t.Errorf("with the device alone: %q", f["tun.attach"])
	}
}

// checkCertificates verifies that the image's CA certificates are present, with and
// without egress rules, and that adding the uplink's CA keeps them.
func (l *dockerLab) checkCertificates(t *testing.T, image string) {
	const look = "cat /etc/ssl/certs/0a1b2c3d.0; stat -c '%n %a %U' /etc/ssl/certs /etc/ssl/certs/*; cat /etc/resolv.conf | grep -c 198.18.0.1"
	out := map[string]string{}
	for _, runtime := range []string{"runc", "runsc"} {
		m := l.linked(t, image, runtime, withEgressRules)
		out[runtime] = shellIn(t, m, "user", look)
		const authority = "-----BEGIN CERTIFICATE-----\nb3Vycw==\n-----END CERTIFICATE-----\n"
		up, err := m.Uplink(t.Context(), []byte(authority))
		if err != nil {
			t.Fatal(err)
		}
		if got := shellIn(t, m, "user", "cat /etc/ssl/certs/0a1b2c3d.0"); got != imageTrust+authority {
			t.Errorf("%s: with an authority %q", runtime, got)
		}
		if err := up.Close(); err != nil {
			t.Error(err)
		}
	}
	want := imageTrust + "/etc/ssl/certs 755 root\n/etc/ssl/certs/0a1b2c3d.0 777 root\n/etc/ssl/certs/ca-certificates.crt 644 root\n1\n"
	for _, runtime := range slices.Sorted(maps.Keys(out)) {
		if out[runtime] != want {
			t.Errorf("%s: %q, want %q", runtime, out[runtime], want)
		}
	}
	if got := shellIn(t, l.linked(t, image, "runc", func(*brig.Spec) {}), "user", "cat /etc/ssl/certs/0a1b2c3d.0"); got != imageTrust {
		t.Errorf("without rules %q", got)
	}
}

// withDocker returns the options of an engine with its own provider and the docker provider.
func withDocker(t *testing.T) engine.Options {
	return engine.Options{
		Drivers: []brig.Driver{docker.Driver()},
		DriverEnv: func(id string) brig.ProviderEnv {
			return brig.ProviderEnv{ID: id, Dir: t.TempDir(), Agent: bin(t, "brig-agent")}
		},
	}
}

// config returns a configuration of the docker provider with the given runtime of the lab's
// engine.
func (l *dockerLab) config(runtime string) brig.ProviderConfig {
	return brig.ProviderConfig{
		ID: docker.Name + "@" + runtime, Config: fmt.Appendf(nil, `{"host": %q, "image": %q, "runtime": %q, "pull": "never"}`, l.host, l.image, runtime),
	}
}

// checkBrokeredSecret verifies that a sandbox can use a secret whose value it
// never receives.
func (l *dockerLab) checkBrokeredSecret(t *testing.T) {
	c := l.config("runc")
	e, ctx, box, _, _ := checkBrokeredSecret(t, "docker", withDocker(t), brig.Spec{Placement: brig.Placement{Provider: c.ID, Only: true}}, c)
	if err := e.Remove(ctx, box.Spec.Name); err != nil {
		t.Error(err)
	}
}

// dialUntilListening dials a port of an instance until a server accepts the connection.
func dialUntilListening(t *testing.T, in brig.Instance, port int) (c net.Conn, err error) {
	t.Helper()
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c, err = in.Dial(t.Context(), port); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// sendTraffic makes an instance send as much data as possible, through its
// uplink and over other connections.
func (l *dockerLab) sendTraffic(t *testing.T, m brig.Instance) {
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
		c, err := dialUntilListening(t, m, 7000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
}

// checkEngineLoss verifies that an instance loses its uplink if the engine is
// killed under heavy traffic, and that a new uplink can be opened afterwards.
func (l *dockerLab) checkEngineLoss(t *testing.T, image string) {
	m := l.linked(t, image, "runc", withEgressRules)
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
	l.sendTraffic(t, m)
	time.Sleep(500 * time.Millisecond)
	l.end(9)
	select {
	case <-got:
	case <-time.After(2 * promptTimeout):
		t.Fatal("without an engine packets come")
	}
	time.Sleep(2 * time.Second) // wait until all buffers on the path are full
	l.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reopened, err := m.Uplink(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reopened.Close()
	if n, err := reopened.Receive(make([]byte, brig.UplinkMTU)); n == 0 || err != nil {
		t.Errorf("with the next one %d bytes, %v", n, err)
	}
}

// TestDockerEgress verifies that no forbidden traffic of a sandbox on a Docker
// Engine arrives at its destination.
//
//suite:part docker full
func TestDockerEgress(t *testing.T) {
	needRoot(t)
	if os.Getenv("BRIG_LAB") == "" {
		dockerRootFS(t) // download it here, because the lab has no network
	}
	if !runInLab(t) {
		return
	}
	l := newEscapeLab(t)
	d := startDocker(t, "runsc")
	o := withDocker(t)
	o.Egress.Resolver = l.resolver()
	e, ctx := engineWith(t, o)
	for _, runtime := range []string{"runc", "runsc"} {
		c := d.config(runtime)
		if _, err := e.ConfigureProvider(ctx, c); err != nil {
			t.Fatal(err)
		}
		t.Run(runtime, func(t *testing.T) {
			l.checkEscapes(t, e, ctx, brig.Spec{Placement: brig.Placement{Provider: c.ID, Only: true}})
		})
	}
}
