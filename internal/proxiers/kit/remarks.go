// SPDX-License-Identifier: Apache-2.0

package kit

import "maps"

// Remarker is a Mechanism, or an Instance, that says what it has programmed.
type Remarker interface {
	// Remarks returns the purposes of chains and sets, of rules and of sockets: by name, by comment, and by address. It is
	// not called during Program.
	Remarks() map[string]string
}

// RemarksOf joins the remarks of those mechanisms that make some.
func RemarksOf[M any](mechanisms []M) map[string]string {
	all := map[string]string{}
	for _, m := range mechanisms {
		if r, ok := any(m).(Remarker); ok {
			maps.Copy(all, r.Remarks())
		}
	}
	return all
}

// Remarks implements Remarker.
func (in *instance) Remarks() map[string]string {
	var mechanisms []Mechanism
	for _, f := range in.families {
		mechanisms = append(mechanisms, f.mechanism)
	}
	return RemarksOf(mechanisms)
}

// Remarks implements Remarker.
func (g *guarded) Remarks() map[string]string { return RemarksOf([]Mechanism{g.Mechanism}) }
