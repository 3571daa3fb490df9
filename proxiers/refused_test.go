// SPDX-License-Identifier: Apache-2.0

package proxiers

import (
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

// TestRefusedService: an Event reports a Service whose rules the kernel or its program rejects, and the others are
// served, whether it comes later or was there from the start. What the API of Kubernetes admits is taken everywhere;
// this one's name has a line break, which no program reads in a comment. IPVS keeps no names: which addresses it
// refuses, and that others are served, is tested with it.
func TestRefusedService(t *testing.T) {
	for _, p := range serving() {
		if p.Name() == "ipvs" {
			continue
		}
		t.Run(p.Name(), func(t *testing.T) {
			w := proxiertest.NewWorld(t, p, lab.Bridge)
			w.Apply(t, proxiertest.Service("two\nlines", 20, proxiertest.AsSticky), "a1", "a2")
			w.Populate(t)
			w.Probe(t, w.Rows)
			w.Restart(t, 0)
			w.Probe(t, w.Rows)
			var dump strings.Builder
			if err := w.Instances[0].Dump(t.Context(), &dump); err != nil {
				t.Fatal(err)
			}
			for _, f := range w.Stack().Families() {
				want := " Warning Service two\n#   lines FailedToProgram: not served on node n1 by IP" + f.String()
				if strings.Count(dump.String(), want) != 1 {
					t.Errorf("want once in the dump: %s\n%s", want, dump.String()[:min(len(dump.String()), 4000)])
				}
			}
			if n := strings.Count(dump.String(), "FailedToProgram"); n != 2 {
				t.Errorf("%d Services are said not to be served", n)
			}
		})
	}
}
