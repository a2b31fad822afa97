"""Attribution methods: ``registry`` lists them, ``attribution`` runs one and combines it with the signals."""
