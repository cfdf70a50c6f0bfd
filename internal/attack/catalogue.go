package attack

import "strings"

// Class is a sort of attack: every case belongs to one, every one has cases
// and a mutant that was seen.
type Class struct{ ID, Title string }

// Family is the part of an id that says where the wall is that is attacked.
func (c Class) Family() string {
	family, _, _ := strings.Cut(c.ID, "-")
	return family
}

// Catalogue lists the classes. SECURITY.md speaks of them by their ids.
func Catalogue() []Class {
	return []Class{
		{"ESC-01", "capabilities, set-user-ID programs, new privileges"},
		{"ESC-02", "mounts, namespaces, other roots"},
		{"ESC-03", "system calls and socket families that reach deep into a kernel"},
		{"ESC-04", "files of /proc and /sys that are the kernel's own"},
		{"ESC-05", "devices"},
		{"ESC-06", "sockets of the host, the server's own address"},
		{"ESC-07", "descriptors that lead out, files of the host"},
		{"ESC-08", "the programs that make the sandbox"},
		{"ESC-09", "an image whose places are links"},
		{"ESC-10", "what an image says of itself"},
		{"ESC-11", "the agent, from programs beside it"},
		{"ESC-12", "typing on a terminal of somebody else"},
		{"ESC-13", "what identifies the host"},
		{"NET-01", "addresses that no rule names: private, metadata, the machine's own"},
		{"NET-02", "addresses and names that are spelled oddly"},
		{"NET-04", "TLS for another name than the one connected to"},
		{"NET-05", "HTTP for another host than the one connected to"},
		{"NET-06", "DNS"},
		{"NET-07", "allowed names that lead to forbidden addresses"},
		{"NET-08", "IPv6 past the rules"},
		{"NET-09", "UDP, ICMP and raw packets"},
		{"NET-10", "an allowed host's other ports"},
		{"NET-11", "requests in requests"},
		{"NET-12", "the interface and the packets themselves"},
		{"NET-13", "rules that become stricter, a server that dies"},
		{"NET-14", "rules that are wrong or empty"},
		{"NET-15", "names that look like allowed ones"},
		{"SEC-01", "a brokered secret in the guest's memory and files"},
		{"SEC-02", "a placeholder that is sent elsewhere"},
		{"SEC-03", "a secret that comes back in an answer"},
		{"SEC-04", "credentials of the caller's own"},
		{"SEC-06", "secrets in files, logs, answers and processes of the host"},
		{"SEC-07", "a key that was revoked"},
		{"FS-01", "paths of the files API"},
		{"FS-02", "paths that change while they are used"},
		{"FS-03", "archives that lead out"},
		{"FS-05", "archives that explode or lie"},
		{"FS-06", "special files read through the API"},
		{"FS-07", "what the store of workspaces says"},
		{"FS-08", "keys of objects beside one's own"},
		{"RES-01", "processes"},
		{"RES-02", "threads"},
		{"RES-03", "memory"},
		{"RES-04", "disk"},
		{"RES-05", "files without content"},
		{"RES-06", "open files"},
		{"RES-07", "output"},
		{"RES-08", "processors"},
		{"RES-10", "programs that do not want to end"},
		{"RES-14", "bodies without an end"},
		{"GST-01", "an agent that answers anything"},
		{"GST-03", "a guest that lies about its end"},
		{"GST-05", "an agent that is gone"},
		{"API-01", "another tenant's things"},
		{"API-02", "guessing keys"},
		{"API-03", "requests that a web page makes"},
		{"API-04", "names that are not the server's (rebinding)"},
		{"API-06", "requests that are wrong"},
		{"API-07", "quotas, by a race"},
		{"UI-02", "a page of one sandbox against another's and the API"},
		{"AUD-01", "changing the audit log"},
	}
}
