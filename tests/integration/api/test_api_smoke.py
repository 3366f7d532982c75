def test_smoke(api, alice):
    print(api.cluster)
    print(api.get("/api/v1/namespaces").json)
    print(alice.get("/api/v1/namespaces", expect=0))
