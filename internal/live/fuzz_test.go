// SPDX-License-Identifier: Apache-2.0

package live

import "testing"

// A person writes a lab.yaml.
func FuzzReadFile(f *testing.F) {
	for _, text := range []string{
		"name: demo\nnodes: 5\nip: dual\nproxier: nftables\nmanifests: [web.yaml, '-']\n",
		"images:\n  web: {oci: web.tar}\n  tool: {rootfs: ./root}\n", "kind: Pod", "", "[]", "nodes: {}", "a: &a\n  b: *a\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if IsFile(text) {
			if file, err := ReadFile("input", text); err == nil {
				for flag, value := range file.Flags() {
					if value == "" {
						t.Errorf("--%s is empty", flag)
					}
				}
			}
		}
	})
}
