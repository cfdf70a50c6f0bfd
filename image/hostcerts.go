package image

import (
	"encoding/binary"
	"encoding/pem"
	"path"
	"strings"
)

const certsDir = "etc/ssl/certs"

// copyCertificates copies the public certificates that the host trusts, so that a
// sandbox with network access can verify its peers.
func (t *hostTree) copyCertificates() error {
	for _, e := range t.m.list(certsDir) {
		name := path.Join(certsDir, e.Name())
		if e.IsDir() {
			continue
		}
		if err := t.copyCertificate(name, name, extractCertificates); err != nil {
			return err
		}
	}
	const bundle, fedora = certsDir + "/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt"
	if _, err := t.out.Lstat(bundle); err != nil {
		if err := t.copyCertificate(fedora, bundle, extractCertificates); err != nil {
			return err
		}
	}
	if t.m.exists(fedora) {
		if err := t.createLink("/"+bundle, fedora); err != nil {
			return err
		}
	}
	const java = certsDir + "/java/cacerts"
	return t.copyCertificate(java, java, keepTrustStore)
}

// copyCertificate copies the host's file from to the path to. pick filters its
// content.
func (t *hostTree) copyCertificate(from, to string, pick func([]byte) []byte) error {
	p, err := t.m.resolve(from)
	if err != nil || !isVisible(p) && !strings.HasPrefix(p, "etc/") {
		return nil
	}
	b, err := t.m.read(from, maxHostFile)
	if err != nil {
		return nil
	}
	if b = pick(b); len(b) == 0 {
		return nil
	}
	target, ok := t.readUsrLink(from)
	if !ok {
		if beside, err := t.m.readlink(from); err == nil && !strings.Contains(beside, "/") {
			target, ok = beside, true
		}
	}
	if ok && from == to {
		if !t.countCopied(from, 0) {
			return nil
		}
		return t.createLink(target, to)
	}
	if !t.countCopied(from, int64(len(b))) {
		return nil
	}
	return t.write(to, b)
}

// extractCertificates returns the certificates of a PEM file, without the text
// between them. It returns nil if the file has a block of another type.
func extractCertificates(b []byte) []byte {
	var out []byte
	for {
		var block *pem.Block
		block, b = pem.Decode(b)
		if block == nil {
			return out
		}
		switch block.Type {
		case "CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE":
			block.Headers = nil
			out = append(out, pem.EncodeToMemory(block)...)
		default:
			return nil
		}
	}
}

// keepTrustStore returns b if it is a trust store.
func keepTrustStore(b []byte) []byte {
	if isTrustStore(b) {
		return b
	}
	return nil
}

// isTrustStore reports whether b is a Java key store (JKS) in which every
// entry is a trusted certificate and none is a key.
func isTrustStore(b []byte) bool {
	const magic, trusted = 0xfeedfeed, 2
	next := func(n int) []byte {
		if n < 0 || n > len(b) {
			b = nil
			return make([]byte, 8) // zeros: no tag has that value
		}
		p := b[:n]
		b = b[n:]
		return p
	}
	u16 := func() int { return int(binary.BigEndian.Uint16(next(2))) }
	u32 := func() int { return int(binary.BigEndian.Uint32(next(4))) }
	if len(b) < 12 || u32() != magic {
		return false
	}
	version, count := u32(), u32()
	for range count {
		if u32() != trusted {
			return false
		}
		next(u16()) // alias
		next(8)     // time
		if version == 2 {
			next(u16()) // kind of certificate
		}
		next(u32())
	}
	return count > 0 && len(b) == 20 // only a SHA-1 digest remains
}
