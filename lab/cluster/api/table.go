// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/viplab/viplab/lab/cluster/store"
)

// printer makes the rows that "kubectl get" shows.
type printer struct {
	columns []metav1.TableColumnDefinition
	cells   func(store.Object) []any
}

// columns describes the columns of a table after the name: those after "|" are shown with -o wide only.
func columns(names ...string) []metav1.TableColumnDefinition {
	out := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}
	var priority int32
	for _, n := range names {
		if n == "|" {
			priority = 1
			continue
		}
		n, integer := strings.CutSuffix(n, "#")
		c := metav1.TableColumnDefinition{Name: n, Type: "string", Priority: priority}
		if integer {
			c.Type = "integer"
		}
		out = append(out, c)
	}
	return out
}

// printerOf returns the printer of a kind; a kind that has none of its own gets name and age.
func printerOf(gk schema.GroupKind) printer {
	if p, ok := printers[gk]; ok {
		return p
	}
	return printer{columns("Age"), func(o store.Object) []any { return []any{o.GetName(), age(o)} }}
}

// table returns the view of some objects as a table.
func (v view) table(objs []store.Object, revision string) *metav1.Table {
	t := &metav1.Table{
		ListMeta:          metav1.ListMeta{ResourceVersion: revision},
		ColumnDefinitions: v.resource.printer.columns,
		Rows:              []metav1.TableRow{},
	}
	t.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Table"))
	for _, o := range objs {
		row := metav1.TableRow{Cells: v.resource.printer.cells(o)}
		switch v.rows {
		case metav1.IncludeObject:
			row.Object = runtime.RawExtension{Object: o}
		case metav1.IncludeMetadata:
			row.Object = runtime.RawExtension{Object: metaOf(o)}
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// The cells for missing values, as in Kubernetes.
const (
	none    = "<none>"
	unset   = "<unset>"
	unknown = "<unknown>"
)

func orNone(s string) string { return cmp.Or(s, none) }

func age(o store.Object) string { return since(o.GetCreationTimestamp().Time) }

func since(t time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t))
}

// few joins at most three words and says how many more there are. It is empty if there are none.
func few(words []string) string {
	if len(words) > 3 {
		return fmt.Sprintf("%s + %d more...", strings.Join(words[:3], ","), len(words)-3)
	}
	return strings.Join(words, ",")
}
