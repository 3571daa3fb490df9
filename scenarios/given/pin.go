package given

import (
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Pin is a target as it is now, its addresses and port written out, for when the object behind it has changed or gone.
func Pin(w spec.World, to spec.Target, proto string) (spec.Target, error) {
	at := map[lab.Family]string{}
	var port uint16
	for _, f := range w.Lab().Stack().Families() {
		a, err := w.Resolve(to, f, proto)
		if err != nil {
			return spec.Target{}, err
		}
		at[f], port = a.Addr().String(), a.Port()
	}
	return spec.AddrAt(at[lab.V4], at[lab.V6], port), nil
}
