// SPDX-License-Identifier: Apache-2.0

package given

import (
	"net/netip"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Pin is a target as it is now, its addresses and port written out, for when the object behind it has changed or gone.
func Pin(w spec.World, to spec.Target, proto string) (spec.Target, error) {
	all, err := ResolveAll(w, to, proto)
	if err != nil {
		return spec.Target{}, err
	}
	at := map[lab.Family]string{}
	for _, a := range all {
		at[lab.FamilyOf(a.Addr())] = a.Addr().String()
	}
	return spec.AddrAt(at[lab.V4], at[lab.V6], all[0].Port()), nil
}

// ResolveAll is where a target is in all families of the cluster.
func ResolveAll(w spec.World, to spec.Target, proto string) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, f := range w.Lab().Stack().Families() {
		a, err := w.Resolve(to, f, proto)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}
