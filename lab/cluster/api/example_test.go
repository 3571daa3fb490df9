// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/store"
)

// A Server is an http.Handler.
func ExampleNew() {
	server := api.New(store.New(store.Config{}))
	defer server.Close()
	request := httptest.NewRequest("GET", "/api/v1/namespaces/default", nil)
	request.Header.Set("Authorization", "Bearer "+server.Token())
	answer := httptest.NewRecorder()
	server.ServeHTTP(answer, request)
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	// Output: 200 application/json
}
