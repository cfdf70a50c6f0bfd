package workspace

// DigestOf is the digest of the tree that a manifest describes, however bad.
func DigestOf(text string) string {
	m, _ := decodeManifest([]byte(text))
	if m == nil {
		return ""
	}
	return m.digest()
}

// PathsOf are a manifest's paths, in the order in which they are unpacked.
func PathsOf(b []byte) ([]string, error) {
	m, err := decodeManifest(b)
	return m.paths(), err
}
