// Package volume keeps the images of volumes and accesses their files from the host.
//
// A volume is a file system in one file (see package diskimage). Sandboxes mount it through their
// provider. This package mounts it for the calls of the API, which never run inside a sandbox.
//
// Programs in sandboxes change a volume while the host walks through it, so the host resolves each
// path inside the volume with openat2, follows links only there, and opens only regular files and
// directories for reading and writing. Start reading at Store.
package volume
