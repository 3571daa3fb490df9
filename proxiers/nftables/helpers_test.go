// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// start starts the proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	in := &instance{}
	d := definition
	d.New = func(_ context.Context, site kit.Site) (kit.Mechanism, error) {
		f, err := familyOf(site)
		in.families = append(in.families, f)
		return f, err
	}
	in.Instance = proxiertest.Start(t, kit.New(d), node)
	return in
}

// instance is the proxier on a node, with its mechanisms.
type instance struct {
	spec.Instance
	families []*family
}

// kernelRules is what the kernel holds: all tables of the namespace, as nft lists them, with sets, maps and chains in
// the order of their names, and the elements of each in order.
func kernelRules(t proxiertest.Failer, in *instance) string {
	var all []string
	for _, f := range in.families {
		text, err := f.table.Text(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, canonical(string(text)))
	}
	return strings.Join(all, "")
}
