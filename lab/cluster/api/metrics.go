// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"net/http"
)

// serveMetrics answers /metrics in the text format of Prometheus, with names of kube-apiserver.
func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	fmt.Fprintln(w, "# HELP apiserver_resource_objects Number of stored objects by resource.")
	fmt.Fprintln(w, "# TYPE apiserver_resource_objects gauge")
	for _, r := range s.ordered {
		all, _ := r.list()
		fmt.Fprintf(w, "apiserver_resource_objects{group=%q,resource=%q} %d\n", r.gvk.Group, r.plural, len(all))
	}
}
