package image

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/brig-run/brig"
)

// packageSources are the package sources of one release.
type packageSources struct {
	suite   string
	sources []source
}

// source is one stanza of apt's sources(5).
type source struct {
	uris, suites, components []string
	signedBy, trusted        string
}

// readPackageSources reads the host's own package sources. For a release other than
// the host's, it uses the same archive without the updates.
func (m *hostFS) readPackageSources(suite string) (*packageSources, error) {
	var all []source
	names := []string{"etc/apt/sources.list"}
	for _, e := range m.list("etc/apt/sources.list.d") {
		names = append(names, path.Join("etc/apt/sources.list.d", e.Name()))
	}
	for _, name := range names {
		b, err := m.read(name, 1<<20)
		switch {
		case err != nil: // missing, or not world-readable
		case strings.HasSuffix(name, ".list"):
			all = append(all, parseList(b)...)
		case strings.HasSuffix(name, ".sources"):
			all = append(all, parseDeb822(b)...)
		}
	}
	own := m.readCodename()
	mine := func(s string) bool {
		return s != "" && (s == own || slices.Contains([]string{"stable", "testing", "unstable", "sid", "oldstable"}, s))
	}
	p := &packageSources{suite: suite}
	if suite == "" {
		p.suite = own
	}
	for _, src := range all {
		if !slices.Contains(src.components, "main") {
			continue // a third-party source
		}
		var suites []string
		for _, s := range src.suites {
			base, _, _ := strings.Cut(strings.ReplaceAll(s, "/", "-"), "-")
			switch {
			case !mine(base):
			case suite == "" || suite == own:
				suites = append(suites, s)
			case base == s:
				suites = []string{suite}
			}
		}
		if len(suites) > 0 {
			src.suites = suites
			p.sources = append(p.sources, src)
		}
	}
	if p.suite == "" || len(p.sources) == 0 {
		return nil, brig.Errorf(brig.FailedPrecondition, "this machine has no source of Debian packages").
			WithHint("an image is built of packages from where /etc/apt/sources.list says; or import a root file system (brig image import NAME FILE)")
	}
	return p, nil
}

// readCodename returns the name of the host's release.
func (m *hostFS) readCodename() string {
	b, err := m.read("etc/os-release", 64<<10)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(b) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "VERSION_CODENAME="); ok {
			if name = strings.Trim(name, `"'`); name != "" && isValidSuite(name) {
				return name
			}
		}
	}
	return ""
}

// parseList parses the one-line format: deb [option=value...] uri suite
// component...
func parseList(b []byte) []source {
	var found []source
	for line := range bytes.Lines(b) {
		text, _, _ := strings.Cut(string(line), "#")
		text, ok := strings.CutPrefix(strings.TrimSpace(text), "deb")
		if !ok || text == "" || !strings.ContainsAny(text[:1], " \t[") {
			continue
		}
		var src source
		if options, rest, ok := strings.Cut(strings.TrimSpace(text), "]"); ok && strings.HasPrefix(options, "[") {
			for option := range strings.FieldsSeq(options[1:]) {
				switch key, value, _ := strings.Cut(option, "="); strings.ToLower(key) {
				case "signed-by":
					src.signedBy = value
				case "trusted":
					src.trusted = value
				}
			}
			text = rest
		}
		if f := strings.Fields(text); len(f) >= 3 {
			src.uris, src.suites, src.components = f[:1], f[1:2], f[2:]
			found = append(found, src)
		}
	}
	return found
}

// parseDeb822 parses the deb822 format: stanzas with fields.
func parseDeb822(b []byte) []source {
	var found []source
	for stanza := range strings.SplitSeq(string(b), "\n\n") {
		fields, last := map[string]string{}, ""
		for line := range strings.Lines(stanza) {
			line = strings.TrimRight(line, " \t\r\n")
			switch key, value, ok := strings.Cut(line, ":"); {
			case line == "" || line[0] == '#':
			case line[0] == ' ' || line[0] == '\t':
				fields[last] += "\n" + line
			case ok:
				last = strings.ToLower(key)
				fields[last] = strings.TrimSpace(value)
			}
		}
		if !slices.Contains(strings.Fields(fields["types"]), "deb") || strings.EqualFold(fields["enabled"], "no") {
			continue
		}
		found = append(found, source{
			uris: strings.Fields(fields["uris"]), suites: strings.Fields(fields["suites"]),
			components: strings.Fields(fields["components"]),
			signedBy:   fields["signed-by"], trusted: fields["trusted"],
		})
	}
	return found
}

// String returns the sources in apt's format of stanzas.
func (p *packageSources) String() string {
	var b strings.Builder
	for _, src := range p.sources {
		fmt.Fprintf(&b, "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\n",
			strings.Join(src.uris, " "), strings.Join(src.suites, " "), strings.Join(src.components, " "))
		if src.signedBy != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", src.signedBy)
		}
		if src.trusted != "" {
			fmt.Fprintf(&b, "Trusted: %s\n", src.trusted)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// uri returns the URI of the archive that contains the release itself.
func (p *packageSources) uri() string {
	for _, src := range p.sources {
		if slices.Contains(src.suites, p.suite) && len(src.uris) > 0 {
			return src.uris[0]
		}
	}
	return p.sources[0].uris[0]
}
