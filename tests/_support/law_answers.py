ANSWERS: dict = {}
